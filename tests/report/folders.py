"""Run folders as the training room writes them, with numbers that a test can foretell; and their pages as read."""

from html.parser import HTMLParser

from deeppc.files import write_lines
from deeppc.runs.folder import RunFolder

NODES = ("conv1", "conv2", "fc")


def record(epoch, **more):
    """Energy 2^-8, 2^-4 and 1, times the epoch: the shares are 1 : 16 : 256 out of 273 in every epoch."""
    energy = {v: epoch * e for v, e in zip(NODES, (2**-8, 2**-4, 1.0), strict=True)}
    return {
        "epoch": epoch,
        "step": 10 * epoch,
        "lr_w": 0.001,
        "train_accuracy": 0.5 + 0.05 * epoch,
        "validation_accuracy": 0.4 + 0.05 * epoch,
        "validation_top5": 0.9,
        "energy": energy,
        "seconds": 2.0,
        **more,
    }


def diagnosed(epoch, **more):
    """Cosines 0.5, 0.9 and 1 less a hundredth for each epoch; gap ratios 1000, 10 and 0.1 times the epoch."""
    cosine = {v: c - 0.01 * epoch for v, c in zip(NODES, (0.5, 0.9, 1.0), strict=True)}
    gap = {v: g * epoch for v, g in zip(NODES, (1000.0, 10.0, 0.1), strict=True)}
    size = dict(zip(NODES, (2e-7, 0.25, 1.5), strict=True))
    return record(epoch, **({"bp_cosine": cosine, "bp_size": size, "gap_ratio": gap} | more))


RESULT = {
    "selected_epoch": 3,
    "select": "validation",
    "validation_accuracy": 0.55,
    "test_accuracy": 0.5432,
    "test_top5": 0.9876,
    "epochs": 4,
    "seconds": 754.0,
    "steps": 40,
}
MANIFEST = {
    "deeppc": "0.1.0",
    "config": {"dataset": "cifar10", "model": "vgg7", "algorithm": "pc+s+f", "T": 9, "epochs": 4, "seed": 17},
    "versions": {"torch": "2.99.1"},
    "git": {"commit": "070bf82c0ffee", "dirty": False},
    "machine": {"processor": "Babbage 9000"},
    "data": {"train": 45000, "validation": 5000, "test": 10000},
    "started": "2025-06-01T12:30:00+00:00",
    "command": ["/somewhere/bin/deeppc", "train", "--algorithm", "pc+s+f"],
}


def make_run(folder, records=None, *, manifest=MANIFEST, result=RESULT, tail=""):
    files = RunFolder(folder)
    files.write_manifest(manifest)
    write_lines(files.metrics_path, [record(e) for e in range(1, 5)] if records is None else records)
    with files.metrics_path.open("a") as lines:
        lines.write(tail)
    if result is not None:
        files.write_result(result)
    return folder


class Page(HTMLParser):
    """A page as a reader gets it: text, links, sources; complains about tags that do not close."""

    VOID = ("meta", "img", "br")

    def __init__(self, path):
        super().__init__()
        self.html = path.read_text(encoding="utf-8")
        self.text, self.links, self.sources, self.tags, self.open = "", [], [], set(), []
        self.feed(self.html)
        self.close()
        assert not self.open
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        found = dict(attrs)
        self.links += [found["href"]] if "href" in found else []
        self.sources += [found["src"]] if "src" in found else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data + "\n"
