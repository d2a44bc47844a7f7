"""The bundled workloads: real data, batches that depend on the seed alone, pictures people can look at."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from torch.nn import functional

import amp_core
from amp_core.config import RunConfig, WorkloadRef, parse_recipe
from amp_core.errors import WorkloadError
from amp_core.events import NonFinite, Numerics, ZeroGradients
from amp_core.loader import describe
from amp_core.training import train
from amp_core.workload import Workload
from amp_core.workloads import digits_cnn, photo_denoiser, stdlib_gpt
from amp_core.workloads.digits_cnn import DigitsCNN
from amp_core.workloads.photo_denoiser import PhotoDenoiser
from amp_core.workloads.stdlib_gpt import StdlibGPT

FOLDER = Path(amp_core.__file__).parent / "workloads"
CLASSES = (PhotoDenoiser, DigitsCNN, StdlibGPT)


@pytest.mark.parametrize("name", ["photo-denoiser", "digits-cnn", "stdlib-gpt"])
def test_each_is_described_without_error(name: str) -> None:
    (found,) = describe(FOLDER / f"{name.replace('-', '_')}.py")
    assert found["name"] == name
    assert found["error"] is None
    assert found["summary"]
    assert all(parameter["help"] for parameter in found["parameters"])


@pytest.mark.parametrize("kind", CLASSES)
def test_training_batches_depend_on_the_seed_alone_and_eval_on_nothing(kind: type[Workload]) -> None:
    torch.manual_seed(1)
    first = list(kind().batches("train", 5))
    torch.manual_seed(2)
    same, other = list(kind().batches("train", 5)), list(kind().batches("train", 6))
    assert all(torch.equal(a, b) for one, two in zip(first, same, strict=True) for a, b in zip(one, two, strict=True))
    assert not torch.equal(first[0][0], other[0][0])
    evals = [list(kind().batches("eval", seed)) for seed in (1, 2)]
    assert all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in zip(*evals, strict=True))
    assert len(first[0][0]) == kind().batch_size


@pytest.mark.parametrize("kind", CLASSES)
def test_loss_is_finite_and_the_primary_metric_is_among_the_metrics(kind: type[Workload]) -> None:
    workload = kind()
    model = workload.model()
    batch = next(iter(workload.batches("train", 0)))
    loss = workload.loss(model, batch)
    assert loss.ndim == 0
    assert math.isfinite(loss.item())
    with torch.no_grad():
        metrics = workload.metrics(model.eval(), workload.batches("eval", 0))
    assert math.isfinite(metrics[workload.primary.name])


class TestPhotoDenoiser:
    def test_the_noisy_photograph_has_17_7_db(self) -> None:
        batches = list(PhotoDenoiser().batches("eval", 0))
        identity = torch.nn.Identity()
        psnr = PhotoDenoiser().metrics(identity, batches)["psnr"]
        noisy, clean = (torch.cat(parts).numpy().astype(np.float64) for parts in zip(*batches, strict=True))
        by_hand = 10 * np.log10(0.1**2 / np.mean((np.clip(noisy, 0, 0.1) - clean) ** 2))
        assert psnr == pytest.approx(by_hand, abs=1e-6)
        assert psnr == pytest.approx(17.7, abs=0.05)

    def test_patches_are_the_photograph_at_ten_percent(self) -> None:
        photo = photo_denoiser.photograph("flower.jpg")
        original = load_sample_image("flower.jpg").astype(np.float64)
        assert np.allclose(photo.numpy(), 0.1 * original / 255, atol=1e-8)
        patches = photo_denoiser.patches_of(photo)
        assert patches.shape == (53 * 80, 192)
        assert torch.equal(patches[81].reshape(8, 8, 3), photo[8:16, 8:16])
        shown = photo[photo_denoiser.CROP]
        assert torch.equal(photo_denoiser.photograph_of(photo_denoiser.patches_of(shown), shown.shape), shown)

    def test_train_and_eval_photographs_differ(self) -> None:
        train = torch.cat([clean for _, clean in PhotoDenoiser().batches("train", 0)])
        evaluated = torch.cat([clean for _, clean in PhotoDenoiser().batches("eval", 0)])
        assert train.mean() > 2 * evaluated.mean()

    def test_pictures_are_small_pngs_whose_names_say_that_they_are_brightened(self) -> None:
        workload = PhotoDenoiser()
        with torch.no_grad():
            pictures = workload.artifacts(workload.model().eval())
        assert list(pictures) == ["clean (brightened ×10)", "noisy (brightened ×10)", "denoised (brightened ×10)"]
        images = [Image.open(io.BytesIO(content)) for content in pictures.values()]
        assert {image.size for image in images} == {(240, 160)}
        original = load_sample_image("flower.jpg")[photo_denoiser.CROP]
        assert np.abs(np.asarray(images[0]).astype(int) - original).max() <= 1

    def test_without_a_scaler_fp16_gives_the_layers_no_gradient_while_the_loss_stays_finite(self) -> None:
        config = RunConfig(
            run_id=1,
            attempt=1,
            workload=WorkloadRef(name="photo-denoiser", path=str(FOLDER / "photo_denoiser.py")),
            recipe=parse_recipe({"precision": "16-mixed", "scaler": "none"}),
            steps=2,
        )
        events = list(train(config, PhotoDenoiser()))
        (numerics, *_) = [event for event in events if isinstance(event, Numerics)]
        hidden = [module for module in numerics.modules if not module.module.endswith("3")]
        assert len(hidden) == 3
        assert all(module.zero_fraction > 0.99 for module in hidden)
        (found, *_) = [event for event in events if isinstance(event, ZeroGradients)]
        assert all(fraction < 0.1 for fraction in found.probe.values())
        assert not [event for event in events if isinstance(event, NonFinite)]

    def test_a_model_of_nans_still_gives_a_picture(self) -> None:
        workload = PhotoDenoiser(width=8)
        model = workload.model()
        for parameter in model.parameters():
            torch.nn.init.constant_(parameter, math.nan)
        with torch.no_grad():
            assert Image.open(io.BytesIO(workload.artifacts(model)["denoised (brightened ×10)"])).size == (240, 160)


class TestDigits:
    def test_the_split_is_complete_and_disjoint(self) -> None:
        images = {split: digits_cnn.digits_of(split)[0].flatten(1) for split in ("train", "eval")}
        assert (len(images["train"]), len(images["eval"])) == (1200, 597)
        assert images["train"].max() == 1
        assert (torch.cdist(images["eval"], images["train"]).min(dim=1).values == 0).float().mean() < 0.01


class TestStdlibGPT:
    def test_targets_are_the_next_bytes(self) -> None:
        text, following = next(iter(StdlibGPT().batches("train", 0)))
        assert torch.equal(text[:, 1:], following[:, :-1])
        assert bytes(text[0].tolist()).decode(errors="replace").isprintable() or b"\n" in bytes(text[0].tolist())

    def test_no_eval_file_is_trained_on(self) -> None:
        assert not set(stdlib_gpt.FILES["train"]) & set(stdlib_gpt.FILES["eval"])

    def test_the_model_sees_only_the_past(self) -> None:
        model = StdlibGPT().model().eval()
        text = torch.randint(256, (1, 32), generator=torch.Generator().manual_seed(0))
        changed = text.clone()
        changed[0, 20] += 1
        with torch.no_grad():
            before, after = model(text), model(changed.clamp(max=255))
        assert torch.equal(before[0, :20], after[0, :20])
        assert not torch.equal(before[0, 20:], after[0, 20:])

    def test_the_loss_is_the_mean_over_all_eval_bytes(self) -> None:
        workload = StdlibGPT()
        model = workload.model().eval()
        batches = list(workload.batches("eval", 0))
        text, following = (torch.cat(parts) for parts in zip(*batches, strict=True))
        with torch.no_grad():
            expected = functional.cross_entropy(model(text).flatten(0, 1), following.flatten()).item()
            metrics = workload.metrics(model, batches)
        assert metrics["loss"] == pytest.approx(expected, rel=1e-5)
        assert metrics["bits_per_byte"] == pytest.approx(expected / math.log(2), rel=1e-5)

    def test_a_width_that_does_not_divide_is_refused(self) -> None:
        with pytest.raises(WorkloadError, match="width=98 must be a multiple of num_heads=4"):
            StdlibGPT(width=98)
