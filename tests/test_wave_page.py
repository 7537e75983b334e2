"""The interactive page docs/wave.html: it computes what the engine does, and works in a real browser.

The page's ``simulate`` gets settings with weights and data from here; the engine, in float64, gets the same.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from browser import DESKTOP, PHONE, browse
from torch import nn

from deeppc import Algorithm, Graph
from deeppc.diagnostics.energy import EnergyTrace
from deeppc.diagnostics.updates import compare_updates, probe

PAGE = Path(__file__).parents[1] / "docs" / "wave.html"
SUFFIX = {"fixed": "", "spiking": "+s", "exponential": "+d", "linear": "+l"}


class Join(nn.Module):
    """``W x + s``: a layer at which a skip connection ends."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, skipped):
        return self.layer(x) + skipped


def network(settings):
    """The page's network as a deeppc graph."""
    layers = [nn.Linear(len(w), len(w), bias=False) for w in settings["weights"]]
    for layer, weight in zip(layers, settings["weights"], strict=True):
        layer.weight = nn.Parameter(torch.tensor(weight, dtype=torch.float64))
    nodes = {str(i + 1): (f, [str(i) if i else "input"]) for i, f in enumerate(layers)}
    if settings["skip"] != "none":
        start, end = str(settings["skipFrom"]), str(settings["skipTo"])
        nodes[end] = (Join(nodes[end][0]), [*nodes[end][1], start])
    net = Graph(nodes)
    return net.balance() if settings["skip"] == "auxiliary" else net


def algorithm(settings):
    spec = "pc" + SUFFIX[settings["schedule"]] + ("+f" if settings["forward"] else "")
    options = {"alpha": settings["alpha"]} if "+s" in spec else {"k": settings["k"]} if "+d" in spec else {}
    return Algorithm.parse(spec, T=settings["T"], lr_x=settings["lr_x"], **options)


def settings(depth, lr_x, T, schedule="fixed", *, alpha=0.01, k=1.0, forward=False, skip="none", size=1.0):
    """Of a random network with 5 neurons in each layer, and 3 samples, which ``size`` scales."""
    g = torch.Generator().manual_seed(depth)

    def drawn(*shape, scale=1.0):
        return (scale * torch.randn(*shape, generator=g, dtype=torch.float64)).tolist()

    given = {"depth": depth, "lr_x": lr_x, "T": T, "schedule": schedule, "alpha": alpha, "k": k, "forward": forward}
    given |= {"skip": skip, "skipFrom": 2, "skipTo": depth - 1}
    weights, inputs, targets = drawn(depth, 5, 5, scale=5**-0.5), drawn(3, 5, scale=size), drawn(3, 5)
    return given | {"weights": weights, "inputs": inputs, "targets": targets}


# Where deviations come near the resolution of activities, the engine's differences are good to 1e-7 only; of a linear
# network they are exact at any depth if the activities are small, too.
SMALL = 1e-30
CASES = [
    settings(2, 1.0, 1),
    settings(10, 0.05, 10, size=SMALL),
    settings(10, 0.5, 25, forward=True),
    settings(20, 0.1, 30, size=SMALL),
    settings(10, 0.5, 10, "spiking"),
    settings(10, 0.5, 14, "spiking", alpha=0.0, forward=True),
    settings(30, 0.05, 30, "spiking", alpha=0.001, forward=True, size=SMALL),
    settings(8, 0.3, 12, "exponential", k=1.5, forward=True),
    settings(8, 0.3, 12, "exponential"),
    settings(8, 0.3, 12, "linear", size=SMALL),
    settings(8, 0.3, 5, "linear", forward=True),
    settings(10, 0.3, 12, skip="plain"),
    settings(10, 0.5, 10, "spiking", forward=True, skip="plain"),
    settings(10, 0.3, 12, skip="auxiliary"),
    settings(10, 0.5, 10, "spiking", forward=True, skip="auxiliary", size=SMALL),
]


def asked(expression, scratch, width=DESKTOP):
    """What a JavaScript expression gives in the page; ``page`` is its window, ``$`` finds an element."""
    script = """<script>
      addEventListener("load", () => {
        const page = document.querySelector("iframe").contentWindow, $ = id => page.document.getElementById(id);
        const answer = (() => { %s })();
        document.body.innerHTML = "<pre>" + JSON.stringify(answer).replaceAll("<", "") + "</pre>";
      });
    </script>"""
    shown = browse(PAGE, width, scratch, "--dump-dom", script=script % expression)
    return json.loads(shown.split("<pre>")[1].split("</pre>")[0])


@pytest.mark.outside
def test_the_page_computes_what_the_engine_does(tmp_path):
    answers = asked(f"return {json.dumps(CASES)}.map(page.simulate);", tmp_path)
    for case, answer in zip(CASES, answers, strict=True):
        net, algo, trace = network(case), algorithm(case), EnergyTrace()
        inputs, targets = (torch.tensor(case[name], dtype=torch.float64) for name in ("inputs", "targets"))
        out = algo.gradients(net, inputs, targets, observe=trace)
        names = [node["name"] for node in answer["nodes"]]
        assert sorted(names) == sorted(trace.nodes)
        assert [node["arrival"] for node in answer["nodes"]] == [net.arrival[v] for v in names]
        energy = trace.energy[[trace.nodes.index(v) for v in names]]
        np.testing.assert_allclose(answer["energy"], energy, rtol=1e-9, atol=0)
        np.testing.assert_allclose(answer["learnt"], [float(out.energy[v]) for v in names], rtol=1e-9, atol=0)
        mine, backprop = (probe(a, net, inputs, targets) for a in (algo, Algorithm.parse("bp")))
        found = compare_updates(mine, backprop)
        for v, update, other, cosine, size in zip(
            names, *(answer[key] for key in ("update", "backprop", "cosine", "size")), strict=True
        ):
            if not mine.updates.get(v):  # an auxiliary node has no weights
                assert update is other is cosine is size is None
                continue
            for ours, (theirs,) in ((update, mine.updates[v]), (other, backprop.updates[v])):
                expected = np.zeros((5, 5)) if theirs is None else theirs.numpy()
                np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-9 * abs(expected).max())
            if cosine is None:
                assert np.isnan(found[v].cosine)
            else:
                assert cosine == pytest.approx(found[v].cosine, rel=1e-9)
            assert size == pytest.approx(found[v].size, rel=1e-9)


@pytest.mark.outside
def test_controls_and_player(tmp_path):
    """As a reader's hands would: a control moves, the numbers follow; the player goes through the steps."""
    answer = asked(
        """
        const turn = (id, value) => { $(id).value = value; $(id).dispatchEvent(new page.Event("input")); };
        const pick = (name, value) => page.document.querySelector(`[name=${name}][value=${value}]`).click();
        const python = () => $("python").textContent, said = () => $("time-out").textContent, log = [];
        $("first").click();
        log.push(python(), said());
        $("next").click(); $("next").click(); $("back").click();
        log.push(said());
        turn("depth", 6); pick("schedule", "spiking"); turn("alpha", 0); $("forward").click(); turn("lr", 0.5);
        log.push(python(), $("summary").textContent);
        turn("steps", 3);
        log.push($("summary").textContent, $("follow").checked);
        pick("skip", "auxiliary"); turn("from", 1); turn("to", 4);
        log.push([...$("map").querySelectorAll("text")].filter(text => text.textContent === "aux").length);
        turn("depth", 2);
        log.push(page.document.querySelector("[name=skip]:checked").value);
        turn("time", 3);
        log.push(said());
        return log;
        """,
        tmp_path,
    )
    start, before, second, spiking, whole, cut, follows, auxiliary, skip, end = answer
    assert start == 'deeppc.Algorithm.parse("pc", T=10, lr_x=0.05)'
    assert [before, second, end] == ["before step 0 of 10", "before step 1 of 10", "after all 3 steps"]
    assert spiking == 'deeppc.Algorithm.parse("pc+s+f", T=6, lr_x=0.5, alpha=0)'
    # lr_x^5 (1 - lr_x) of backprop's length, and parallel to it: SPEC's second oracle, in layer 1 of 6
    assert f"{0.5**6:.2g} times as long as backprop's" in whole
    assert "All updates point in backprop's direction" in whole
    assert "does not reach layer 1, 5 levels below" in cut
    assert not follows
    assert auxiliary == 2  # on levels 2 and 3
    assert skip == "none"  # no room for one


@pytest.mark.outside
def test_every_example_is_drawn_at_both_widths(tmp_path):
    for width in (DESKTOP, PHONE):
        found = asked(
            """
            return [...$("presets").children].map(button => {
              button.click();
              const drawn = ["wave", "map", "learnt"].map(id => $(id).innerHTML).join("");
              return [drawn.length, /NaN|undefined|Infinity/.test(drawn + $("summary").textContent),
                      $("hint").textContent.length, page.document.documentElement.scrollWidth];
            });
            """,
            tmp_path,
            width,
        )
        assert len(found) == 9
        for drawn, broken, hint, wide in found:
            assert drawn > 5000
            assert not broken
            assert hint > 20
            assert wide <= width


def test_nothing_is_loaded_from_elsewhere():
    text = PAGE.read_text(encoding="utf-8")
    assert not re.findall(r"<link|@import|\bsrc=|\bfetch\(|XMLHttpRequest|import\(|https?://", text)
    assert "<script>" in text


def test_the_colours_are_those_of_the_pictures():
    """Stops of the two scales, interpolated, stay within a few shades of matplotlib's, which the reports use."""
    import matplotlib

    text = PAGE.read_text(encoding="utf-8")
    for name, colours, low, high in (("DEPTH", "plasma", 0.02, 0.76), ("HEAT", "inferno", 0.08, 0.96)):
        stops = re.findall(r"#[0-9a-f]{6}", text.partition(f"const {name} =")[2].partition(";")[0])
        given = np.array([[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in stops]) / 255
        places = np.linspace(0, 1, 100)
        theirs = matplotlib.colormaps[colours](low + (high - low) * places)[:, :3]
        ours = np.stack([np.interp(places, np.linspace(0, 1, len(given)), given[:, i]) for i in range(3)], axis=1)
        assert abs(ours - theirs).max() < 0.03
