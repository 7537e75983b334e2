"""Small networks of every shape for the tests of the core, and what they learn."""

import copy

import torch
from hypothesis import strategies as st
from torch import nn

from deeppc import Algorithm, Chain, Graph, Sum
from deeppc.core.algorithms import options_for


class Mix(nn.Module):
    """A node with parents of any sizes: ``act(sum_i W_i x_i + b)``."""

    def __init__(self, sizes, size, act):
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(s, size) for s in sizes)
        self.act = act

    def forward(self, *xs):
        return self.act(sum(f(x) for f, x in zip(self.maps, xs, strict=True)))


class Prior(nn.Module):
    """A learnt constant: it ignores its parent, and its prediction is a view of its parameter."""

    def __init__(self, size):
        super().__init__()
        self.b = nn.Parameter(torch.randn(size))

    def forward(self, x):
        return self.b.expand(len(x), -1)


def mlp(L, size=6, classes=3, act=nn.Tanh):
    hidden = [nn.Sequential(nn.Linear(size, size), act()) for _ in range(L - 1)]
    return Chain(*hidden, nn.Linear(size, classes))


def residual(blocks, aux, channels=8, classes=5):
    """A pre-activation residual net of ``2 * blocks + 2`` levels on 3x8x8 images."""

    def conv():
        return nn.Conv2d(channels, channels, 3, padding=1, bias=False)

    class Join(nn.Module):
        """``conv(act(m)) + x``: the end of a block without auxiliary nodes."""

        def __init__(self):
            super().__init__()
            self.conv = conv()

        def forward(self, m, x):
            return self.conv(nn.functional.gelu(m)) + x

    nodes = {"stem": (nn.Conv2d(3, channels, 3, padding=1, bias=False), "input")}
    tips = ["stem"]
    for b in range(blocks):
        nodes[f"m{b}"] = (Sum(nn.GELU(), conv()), tips)
        if aux:
            nodes[f"a{b}"] = (Sum(), tips)
            nodes[f"n{b}"] = (nn.Sequential(nn.GELU(), conv()), f"m{b}")
            nodes[f"b{b}"] = (nn.Identity(), f"a{b}")
            tips = [f"n{b}", f"b{b}"]
        else:
            nodes[f"n{b}"] = (Join(), [f"m{b}", *tips])
            tips = [f"n{b}"]
    head = Sum(nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
    return Graph({**nodes, "head": (head, tips)})


def vgg(classes=4, norm=False):
    """Conv blocks with pooling, a flatten on its own, and a linear output, on 3x8x8 images."""

    def block(i, o):
        return nn.Sequential(
            nn.Conv2d(i, o, 3, padding=1), *([nn.BatchNorm2d(o)] if norm else []), nn.GELU(), nn.MaxPool2d(2)
        )

    return line(block(3, 4), block(4, 6), nn.Flatten(), nn.Linear(24, classes))


def line(*modules):
    """A chain in which modules without parameters are nodes, too."""
    return Graph({str(i + 1): (module, str(i) if i else "input") for i, module in enumerate(modules)})


@st.composite
def dags(draw):
    """Any graph: every node has some earlier nodes as parents, loose ends lead to the output."""
    n = draw(st.integers(0, 5))
    torch.manual_seed(draw(st.integers(0, 2**16)))
    sizes = {"input": 4}
    nodes: dict = {}
    for i in range(n):
        earlier = list(sizes)
        parents = draw(st.lists(st.sampled_from(earlier), min_size=1, max_size=3, unique=True))
        kind = draw(st.sampled_from(["mix", "mix", "identity", "reshape", "prior"])) if len(parents) == 1 else "mix"
        act = draw(st.sampled_from([nn.Tanh(), nn.GELU(), nn.Identity()]))
        size = {"mix": draw(st.integers(1, 4)), "prior": 2}.get(kind, sizes[parents[0]])
        modules = {"identity": nn.Identity(), "reshape": nn.Sequential(nn.Unflatten(1, (-1, 1)), nn.Flatten())}
        modules |= {"prior": Prior(2), "mix": Mix([sizes[p] for p in parents], size, act)}
        nodes[f"h{i}"], sizes[f"h{i}"] = (modules[kind], parents), size
    used = {p for _, parents in nodes.values() for p in parents}
    loose = [v for v in nodes if v not in used] or ["input"]
    extra = draw(st.lists(st.sampled_from(list(sizes)), max_size=2))
    parents = list(dict.fromkeys(loose + extra))
    nodes["out"] = (Mix([sizes[p] for p in parents], 3, nn.Identity()), parents)
    names = draw(st.permutations(list(nodes)))
    net = Graph({v: nodes[v] for v in names}).double()
    for v in draw(st.lists(st.sampled_from(names), max_size=1)):
        net.nodes[v].requires_grad_(False)
    return net


def parse(spec, **options):
    """The algorithm with those of the options that mean something to it."""
    return Algorithm.parse(spec, **{name: value for name, value in options.items() if name in options_for(spec)})


@st.composite
def algorithms(draw, families=("pc", "ipc")):
    """Any algorithm, with any of its options."""
    family = draw(st.sampled_from(families))
    update = draw(st.sampled_from(["", "+f"])) if family == "pc" else ""
    return parse(
        family + draw(st.sampled_from(["", "+s", "+d", "+l"])) + update,
        T=draw(st.sampled_from([None, 1, 2, 4, 7])),
        lr_x=draw(st.sampled_from([0.1, 0.5, 1.0])),
        momentum_x=draw(st.sampled_from([0.0, 0.0, 0.5])),
        nesterov=draw(st.booleans()),
        alpha=draw(st.sampled_from([0.0, 0.01, 0.3])),
        k=draw(st.sampled_from([1.0, 2.0])),
        beta=draw(st.sampled_from([1.0, 0.3])),
        loss=draw(st.sampled_from(["squared_error", "cross_entropy"])),
        precision_on=draw(st.sampled_from(["energy", "energy", "node"])),
        depth_gain=draw(st.booleans()),
        presynaptic=draw(st.sampled_from(["initial", "relaxed"])),
        forward_last=draw(st.sampled_from([None, 1, 2])),
        free_steps=draw(st.sampled_from([0, 0, 3])),
        follow=draw(st.booleans()),
    )


def batch(net, n=5, seed=0, dtype=torch.float64, shape=None):
    """Random images and labels for a net; the input's shape is that of the first weight unless given."""
    g = torch.Generator().manual_seed(seed)
    first = next(iter(net.parameters()))
    shape = shape or ((3, 8, 8) if first.dim() == 4 else (first.shape[1],))
    images = torch.randn(n, *shape, generator=g, dtype=dtype)
    return images, torch.randint(0, classes_of(net, images), (n,), generator=g)


def one_hot(net, images, labels):
    return nn.functional.one_hot(labels, classes_of(net, images)).to(images.dtype)


@torch.no_grad()
def classes_of(net, images):
    classes = net.eval()(images[:2]).shape[1]
    net.train()
    return classes


def gradients(algo, net, images, labels, **options):
    """By parameter name, from a clean slate."""
    net.zero_grad()
    algo.gradients(net, images, labels, **options)
    return {n: None if p.grad is None else p.grad.clone() for n, p in net.named_parameters()}


def learnt(algo, net, images, labels, optimizer=None):
    """Gradients by parameter name; of ipc the weights after a step, by AdamW unless told."""
    if not algo.updates_weights:
        return gradients(algo, net, images, labels)
    net = copy.deepcopy(net)
    algo.step(net, images, labels, (optimizer or adamw)(net.parameters()))
    return {n: p.detach() for n, p in net.named_parameters()}


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def assert_same(ours, theirs, tolerance=1e-9):
    """To ``tolerance`` of the largest entry: the gradients of deep layers are small numbers."""
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        assert (ours[name] is None) == (expected is None), f"{name}: a gradient where, and only where, energy came"
        if expected is not None:
            atol = tolerance * float(expected.abs().max()) + 1e-15
            torch.testing.assert_close(ours[name], expected, rtol=0, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


def cosine(a, b):
    """Each vector normalised first and in float64: ``F.cosine_similarity``'s eps hides small gradients."""
    a, b = a.double().flatten(), b.double().flatten()
    return float((a / a.norm()) @ (b / b.norm()))


def backprop(net, images, target, loss="squared_error"):
    """BP's gradients by ``loss.backward()``, which knows nothing of deeppc."""
    net.zero_grad()
    out = net(images)
    value = (out - target).square().sum() / 2 if loss == "squared_error" else -(target * out.log_softmax(1)).sum()
    if value.requires_grad:
        (value / len(images)).backward()
    return {n: None if p.grad is None else p.grad.clone() for n, p in net.named_parameters()}


NETS = {
    "chain": lambda: mlp(5),
    "vgg": vgg,
    "vgg with norms": lambda: vgg(norm=True),
    "residual with auxiliary nodes": lambda: residual(2, aux=True),
    "residual without": lambda: residual(2, aux=False),
    "balanced": lambda: residual(2, aux=False).balance(),
}


def case(net, shape=None):
    """A network, by name or as it is, and a batch for it: net, images, labels, targets."""
    if isinstance(net, str):
        torch.manual_seed(0)
        net = NETS[net]().double()
    images, labels = batch(net, shape=shape)
    return net, images, labels, one_hot(net, images, labels)
