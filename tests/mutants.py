"""Break the core on purpose, one way at a time, and show that the tests notice: ``make mutants``.

Each mutant is a small, plausible mistake: a sign, a step too late, a sum for a mean, a stale prediction. It is
applied to a copy of the package, the core's tests run against the copy, and they must fail. A mutant whose text is
no longer in the source is an error too, so that this list keeps up with the code.
"""

import contextlib
import io
import multiprocessing
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
import torch
import torch.export

ROOT = Path(__file__).resolve().parents[1]

# First those that notice most, soonest; then everything.
STAGES = (
    ["tests/core/test_oracles.py", "-k", "test_5_equals_the_naive_engine_on_images or test_5_holds_where_pulls"],
    [f"tests/core/test_{name}.py" for name in ("norm", "depth", "algorithms", "graph", "work", "oracles")],
)
MUTANTS = [
    # what is wrong, file, text, put in its place
    ("force from successors has the wrong sign", "engine.py", ".pulled(-pi * receive[p]", ".pulled(pi * receive[p]"),
    ("a node's own error is forgotten", "engine.py", "insert(0, (pi * receive[v], eps))", "insert(0, (0.0, eps))"),
    ("parents have their turn first", "engine.py", "        for v in reversed(list(net.nodes)):\n            state.forget", "        for v in net.nodes:\n            state.forget"),
    ("a pull changes when its node moves", "engine.py", "pull.clone() if d is not None and _shares_memory(pull, d) else pull", "pull"),
    ("a node settles when its own error is silent", "engine.py", "last.update(dict.fromkeys(ends, t))", "last[v] = t"),
    ("momentum goes on in a settled node", "engine.py", "if descent.momentum or (descent.send(v, t)", "if (descent.send(v, t)"),
    ("a large prediction is made anew from moved parents", "engine.py", "self.mu0.get(p, self._activities[INPUT])", "self.activity(p)"),
    ("large predictions are kept", "engine.py", "if successor in self._large:", "if False:"),
    ("precision of the receiver on the pull", "engine.py", ".pulled(-pi *", ".pulled(-descent.send(p, t) *"),
    ("a stale prediction is used again", "engine.py", "            self.predictions.pop(successor, None)", "            pass"),
    ("a stale activity is used again", "engine.py", '"""Let go of ``x_v``, which the successors have read."""\n        self._activities.pop(v, None)', '"""Nothing."""'),
    ("the first successor alone is told of a move", "engine.py", "in self.net.successors[v]:", "in self.net.successors[v][:1]:"),
    ("weights move but the prediction stays", "engine.py", "            self.relearnt.add(v)\n            self.predictions.pop(v, None)", "            pass"),
    ("learnt weights leave the prediction undisturbed", "engine.py", "v not in self.relearnt and not any", "not any"),
    ("a moved parent is overlooked", "engine.py", "return v not in self.d and self.undisturbed(v)", "return v not in self.d"),
    ("momentum kept between batches", "engine.py", "    momentum: dict[str, Tensor] = {}\n    incremental", "    momentum = _KEPT\n    incremental"),
    ("momentum stops where the force does", "engine.py", "or (v in momentum and not last_look)", ""),
    ("Nesterov is plain momentum", "engine.py", "Force([*force, (m, momentum[v])] if descent.nesterov else [(1.0, momentum[v])])", "Force([(1.0, momentum[v])])"),
    ("iPC takes its weight gradients without precision", "engine.py", "parents=parents, pi=learning)", "parents=parents, pi=float(bool(learning)))"),
    ("the prediction at the end moves no statistics", "engine.py", "        prediction = state.predict(v, moving_statistics=True)", "        prediction = state.predict(v)"),
    ("iPC moves no statistics in its last step", "engine.py", "if last_look and freezable(module)]", "if False]"),
    ("forward update on every node", "engine.py", 'if v not in forward or presynaptic == "relaxed":', 'if presynaptic == "relaxed":'),
    ("free relaxation spoils the relaxed state", "engine.py", "{v: d.clone() for v, d in relaxed.items()}", "dict(relaxed)"),
    ("a kept graph is spent by inference", "engine.py", "retain_graph=kept", "retain_graph=False"),
    ("backprop forgets one of two paths", "engine.py", "delta[p] + pull if p in delta else pull", "pull"),
    ("gradients replace instead of add", "engine.py", "scaled if parameter.grad is None else parameter.grad + scaled", "scaled"),
    ("energy without its half", "engine.py", "-100).square().sum() / 2", "-100).square().sum()"),
    ("bp's energy without its half", "engine.py", "norms.square().sum() / 2", "norms.square().sum()"),
    ("errors of inference are taken for large", "engine.py", "small=len(self.d) > 1", "small=False"),
    ("squares in float32", "engine.py", 'torch.float32 if eps.device.type == "mps" else torch.float64', "torch.float32"),
    ("activities instead of deviations", "engine.py", "force.applied(self.d.get(v), -descent.lr, read)", "force.applied(self.d.get(v), -descent.lr, read).add_(self.mu0[v]).sub_(self.mu0[v])"),
    ("a force is spent that another node needs", "engine.py", "not any(_shares_memory(to, x) for x in read)", "True"),
    ("a repeated number is written to", "engine.py", "_is_whole(to) and ", ""),
    ("a repeated part is written to", "engine.py", " and 0 not in x.stride()", ""),
    ("squares of small errors underflow", "engine.py", "torch.where(norms > 2.0**-40, norms, raised * 2.0**-100)", "norms"),
    ("squares of large errors overflow", "engine.py", "torch.where(norms > 2.0**-40, norms, raised * 2.0**-100)", "raised.mul(2.0**-100)"),
    ("dropout draws anew at every prediction", "engine.py", "if v in self._draws else nullcontext()", "if False else nullcontext()"),
    ("sum over the batch for mean", "algorithms.py", "return -pi * gain / (state.batch * beta)", "return -pi * gain / beta"),
    ("nudging not undone", "algorithms.py", "return -pi * gain / (state.batch * beta)", "return -pi * gain / state.batch"),
    ("iPC clamped as if never centred", "algorithms.py", "        state.clamp(target, beta)", "        state.clamp(target, abs(beta) if self.family == 'ipc' else beta)"),
    ("arrival off by one for a node's update", "algorithms.py", "self._pi(t, net.arrival[v] - 1, T)", "self._pi(t, net.arrival[v], T)"),
    ("centre nudging always positive", "algorithms.py", "2 * torch.randint(0, 2, (), device=target.device) - 1", "torch.ones((), device=target.device)"),
    ("one step too few", "algorithms.py", "        T = self.T or net.L\n", "        T = (self.T or net.L) - 1\n"),
    ("last k levels off by one", "algorithms.py", "net.arrival[v] < last", "net.arrival[v] <= last"),
    ("unreached weights decayed", "algorithms.py", "            optimizer.step()\n            optimizer.zero_grad()", "            optimizer.step()\n            optimizer.zero_grad(set_to_none=False)"),
    ("a learnt constant moves under the activities", "engine.py", "self.mu0[v] = self.mu0[v].clone()", "pass"),
    ("gradients lost to a refused batch", "algorithms.py", "        last = math.inf", "        if optimizer is not None:\n            optimizer.zero_grad()\n        last = math.inf"),
    ("random numbers lost to a refused batch", "norm.py", "        set_random_state(stood, device)\n", ""),
    ("autocast keeps old weights", "engine.py", "torch.clear_autocast_cache()", "pass"),
    ("bp is nudged", "algorithms.py", 'self.beta if self.family != "bp" else 1.0', "self.beta"),
    ("bp's hidden energies are wrong", "engine.py", "        self.energy[v] = self.state.energy(v, eps, prediction)", "        self.energy[v] = (1 if v == self.state.net.output or v in self.state.d else 7) * self.state.energy(v, eps, prediction)"),
    ("free relaxation learns from the initial pass", "algorithms.py", 'self.presynaptic == "initial" and not self.free_steps', 'self.presynaptic == "initial"'),
    ("the target forgotten after free relaxation", "engine.py", "-(self.target * torch", "-((self.response0 + self.d[v]) * torch"),
    ("depth gain upside down", "algorithms.py", "self.lr_x ** -net.arrival[v]", "self.lr_x ** net.arrival[v]"),
    ("the output is not clamped", "algorithms.py", "still = (INPUT, net.output)", "still = (INPUT,)"),
    ("the spike a step late", "precision.py", "1.0 if t == arrival else alpha", "1.0 if t == arrival + 1 else alpha"),
    ("a decay before arrival", "precision.py", "        if t < arrival:\n            return 1.0", "        if t < arrival:\n            return 0.0"),
    ("a decay that does not sum to one", "precision.py", "n * (n + 1) / 2", "n * n / 2"),
    ("level by the shortest path", "graph.py", "1 + max(self.level[p]", "1 + min(self.level[p]"),
    ("one identity too few on a skip", "graph.py", "self.level[v] - self.level[p] - 1", "max(0, self.level[v] - self.level[p] - 2)"),
    ("shared parameters pass", "graph.py", "owner.setdefault(tensor, v) != v", "False"),
    ("running statistics moved during inference", "norm.py", "running_var = False, None, None", "running_var = True, layer.running_mean, layer.running_var"),
    ("thawed norms are frozen", "norm.py", 'not getattr(layer, "thawed", False)', "True"),
    ("a refused batch leaves its statistics", "norm.py", "buffer.copy_(value)", "pass"),
]  # fmt: skip


def outcome(mutant: tuple[str, str, str, str]) -> tuple[int, str]:
    """The exit code of the core's tests against a copy of the package with the mutant in it, and what they said."""
    _, file, old, new = mutant
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
        package = Path(folder) / "deeppc"
        shutil.copytree(ROOT / "src" / "deeppc", package, ignore=shutil.ignore_patterns("__pycache__"))
        source = (package / file).read_text()
        if source.count(old) != 1:
            return -1, f"its text occurs {source.count(old)} times in {file}; bring the list up to date"
        source = source.replace(old, new)
        if "_KEPT" in new:
            source += "\n_KEPT: dict[str, Tensor] = {}\n"
        (package / file).write_text(source)
        os.chdir(ROOT)
        sys.path.insert(0, folder)
        for tests in STAGES:
            code = pytest.main([*tests, "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=quick"])
            if code != pytest.ExitCode.OK:
                break
    return int(code), said.getvalue()[-800:]


def main() -> int:
    """Each mutant in a fork of this process, which has imported torch once and deeppc never.

    The first is a control: on the untouched source the tests must pass, or they would "catch" anything.
    """
    torch.set_num_threads(1)
    chosen = [m for m in MUTANTS if len(sys.argv) < 2 or any(word in m[0] for word in sys.argv[1:])]
    control = ("control", "engine.py", '"""The engine:', '"""The engine:')
    alive = 0
    with multiprocessing.get_context("fork").Pool(os.cpu_count(), maxtasksperchild=1) as pool:
        for mutant, (code, said) in zip([control, *chosen], pool.imap(outcome, [control, *chosen]), strict=True):
            expected = pytest.ExitCode.OK if mutant is control else pytest.ExitCode.TESTS_FAILED
            alive += code != expected
            verdict = "passed  " if mutant is control else "caught  "
            print(
                f"{verdict}  {mutant[0]}" if code == expected else f"SURVIVED  {mutant[0]}: {code}\n{said}", flush=True
            )
    print(f"{len(chosen)} mutants, {alive} not as they should be")
    return int(alive > 0)


if __name__ == "__main__":
    sys.exit(main())
