"""The unpickler returns what was pickled, for numbers in plain containers, and refuses everything else."""

import contextlib
import pickle
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from official import python2_pickle

from deeppc.data.unpickle import load_dict

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(min_size=1),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
shapes = hnp.array_shapes(min_dims=0, max_dims=3, max_side=5)
arrays = hnp.arrays(np.uint8, shapes)


@settings(max_examples=40)
@given(st.dictionaries(st.text(), plain, max_size=4), st.integers(2, 4))
def test_plain_containers_come_back(content, protocol):
    assert load_dict(pickle.dumps(content, protocol)) == content


@settings(max_examples=40)
@given(arrays, st.booleans(), st.integers(2, 4))
def test_arrays_come_back(array, transpose, protocol):
    array = array.T if transpose else array  # a transposed array is pickled in Fortran order
    got = load_dict(pickle.dumps({b"data": array}, protocol))["data"]
    assert got.dtype == array.dtype
    np.testing.assert_array_equal(got, array)


def test_a_python_2_pickle_as_the_official_files_are():
    rows = np.arange(2 * 3072).astype(np.uint8).reshape(2, 3072)
    got = load_dict(python2_pickle(rows, labels=[3, 8]))
    assert got["labels"] == [3, 8]
    assert got["batch_label"] == b"training batch 1 of 5"
    np.testing.assert_array_equal(got["data"], rows)


def named(module: str, name: str, *texts: str) -> bytes:
    """{'x': module.name(*texts)}, for functions that pickle itself would refuse to look up."""
    arguments = b"".join(b"X" + struct.pack("<i", len(t)) + t.encode() for t in texts)
    return b"\x80\x02}U\x01x" + f"c{module}\n{name}\n".encode() + b"(" + arguments + b"tRs."


@pytest.mark.parametrize(
    ("module", "name"),
    [
        *(("os", "system"), ("posix", "system"), ("subprocess", "Popen"), ("importlib", "import_module")),
        *(("builtins", "eval"), ("builtins", "getattr"), ("__builtin__", "eval"), ("copyreg", "_reconstructor")),
        *(("numpy", "load"), ("numpy", "fromfile"), ("numpy", "memmap"), ("numpy", "ndarray.tofile")),
        *(("numpy.core.multiarray", "fromfile"), ("numpy._core.multiarray", "scalar"), ("_codecs", "decode")),
        *(("numpy.ctypeslib", "load_library"), ("codecs", "open"), ("deeppc.data.unpickle", "load_dict")),
    ],
)
def test_globals_that_an_array_does_not_need_are_refused(module, name):
    with pytest.raises(pickle.UnpicklingError, match="has no place in a data set"):
        load_dict(named(module, name, "echo"))


def test_nothing_of_a_hostile_pickle_is_run(tmp_path):
    proof = tmp_path / "proof"
    for attack in (("os", "system", f"touch {proof}"), ("builtins", "eval", f"open({str(proof)!r}, 'w')")):
        with pytest.raises(pickle.UnpicklingError):
            load_dict(named(*attack))
    assert not proof.exists()


GOOD = pickle.dumps({"data": np.zeros((4, 3), np.uint8)}, 3)


@pytest.mark.parametrize(
    "data",
    [
        named("numpy", "ndarray", "x"),
        named("numpy", "dtype", "O"),  # arrays of objects are pointers
        named("numpy", "dtype", "V8"),
        named("numpy", "dtype", "i8,i8"),
        named("numpy.core.multiarray", "_reconstruct"),  # an array that never got its content
        pickle.dumps({"data": np.array([{}, []], dtype=object)}, 2),
        GOOD.replace(b"K\x04K\x03\x86", b"K\x04K\x7f\x86"),  # a shape that the bytes do not fill
        b"\x80\x02cnumpy\nndarray\n)\x81.",  # NEWOBJ
        b"(inumpy\ndtype\n.",  # INST
        b"\x80\x02(cnumpy\ndtype\no.",  # OBJ
        b"\x80\x02\x82\x01.",  # EXT1: copyreg's registry
        b"Pname\n.",  # PERSID
        b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\x00\x00.",  # BYTEARRAY8 of petabytes
        *(pickle.dumps(content, 2) for content in ([1], 5, None, np.zeros(3, np.uint8))),  # no dictionary
    ],
)
def test_what_data_do_not_need_is_refused(data):
    assert data != GOOD
    with pytest.raises(pickle.UnpicklingError):
        load_dict(data)


def test_no_codec_is_looked_up_by_name():
    """It would decompress, or import a module: whatever the file says, text is encoded as latin-1."""
    assert load_dict(named("_codecs", "encode", "x", "zlib")) == {"x": b"x"}


@pytest.mark.parametrize(
    ("module", "name"), [("_codecs", "encode"), ("numpy", "dtype"), ("numpy.core.multiarray", "_reconstruct")]
)
def test_state_put_on_a_function_does_not_reach_the_next_file(module, name):
    """BUILD sets attributes, such as default arguments: of a function that this one file got."""
    state = b"N}U\x0c__defaults__)s\x86"
    with contextlib.suppress(pickle.UnpicklingError):
        load_dict(b"\x80\x02}U\x01x" + f"c{module}\n{name}\n".encode() + state + b"bs.")
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    np.testing.assert_array_equal(load_dict(pickle.dumps({"x": array}, 2))["x"], array)


def test_a_giant_table_index_costs_nothing():
    """Ten bytes that make the unpickler in C ask for 64 GB."""
    assert load_dict(b"\x80\x02}r\xff\xff\xff\xff.") == {}


def test_every_truncation_is_noticed():
    whole = python2_pickle(np.zeros((1, 12), np.uint8), labels=[1])
    for length in range(0, len(whole), 3):
        with pytest.raises(pickle.UnpicklingError):
            load_dict(whole[:length])


@given(st.binary(max_size=60))
def test_random_bytes_raise_nothing_but_an_unpickling_error(data):
    with contextlib.suppress(pickle.UnpicklingError):
        assert isinstance(load_dict(b"\x80\x02" + data), dict)
