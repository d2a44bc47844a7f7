"""Comments that silence findings."""

import pytest
from lint_sources import found

SOURCE = """\
import torch

def train(model, opt, loader):
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x)
        scaler.scale(loss).backward()
        {above}
        torch.nn.utils.clip_grad_norm_({inside}
            model.parameters(), 1.0
        ){behind}
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
"""
EXPECTED = {(10, "clip-before-unscale")}


def source(*, above="pass", inside="", behind=""):
    return SOURCE.format(above=above, inside=inside, behind=behind)


@pytest.mark.parametrize(
    "comment",
    [
        "# amp: ignore",
        "#amp:ignore[AMP101]",
        "# amp: ignore[clip-before-unscale]",
        "# amp: ignore[amp205, AMP101]  because of the paper",
        "# noqa  # amp: ignore[AMP101]",
    ],
)
def test_silenced_on_the_line_behind_it_or_above(comment):
    assert found(source(inside="  " + comment)) == set()
    assert found(source(behind="  " + comment)) == set()
    assert found(source(above=comment)) == set()


@pytest.mark.parametrize("comment", ["# amp: ignore[AMP102]", "# ignore", "# amp ignore", '"# amp: ignore"'])
def test_other_comments_silence_nothing(comment):
    assert found(source(above=comment)) == EXPECTED
    assert found(source()) == EXPECTED


def test_a_whole_file():
    assert found("# amp: ignore-file[AMP101]\n" + source()) == set()
    assert found("# amp: ignore-file[AMP102]\n" + source()) == {(11, "clip-before-unscale")}
