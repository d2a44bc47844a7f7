"""One small call for every operation on CUDA's autocast lists, on any device and in any dtype of its main input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

A = torch.ops.aten
Call = Callable[["Inputs", torch.dtype], Any]
UNARY = "acos asin cosh erfinv exp expm1 log log10 log1p log2 reciprocal rsqrt sinh tan prod sum"


class Inputs:
    """Makes inputs on one device; values lie in (0.1, 0.9), where every operation here is defined."""

    def __init__(self, device: str) -> None:
        self.device = device

    def __call__(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return (torch.rand(*shape, device=self.device) * 0.8 + 0.1).to(dtype)

    def index(self, *shape: int, high: int = 3) -> Tensor:
        return torch.randint(0, high, shape, device=self.device)

    def ones(self, *shape: int) -> Tensor:
        return torch.ones(*shape, device=self.device)


def _conv(name: str, *shape: int) -> Call:
    dims = len(shape) - 2
    return lambda t, d: getattr(functional, name)(t(*shape, dtype=d), t(shape[1], shape[1], *[3] * dims), t(shape[1]))


def _convolution(overload: Any, *flags: bool) -> Call:
    def call(t: Inputs, d: torch.dtype) -> Any:
        settings = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
        return overload(t(2, 3, 8, 8, dtype=d), t(4, 3, 3, 3), t(4), *settings, *flags)

    return call


def _unary(name: str) -> Call:
    return lambda t, d: getattr(torch, name)(t(3, 4, dtype=d))


def _pair(name: str, *shape: int) -> Call:
    return lambda t, d: getattr(torch, name)(t(*shape, dtype=d), t(*shape))


def _same(name: str, *shape: int) -> Call:
    return lambda t, d: getattr(torch, name)(t(*shape, dtype=d), t(*shape, dtype=d))


def _loss(name: str) -> Call:
    return lambda t, d: getattr(functional, name)(t(3, 4, dtype=d), t(3, 4, dtype=d))


def _cell(name: str, gates: int) -> Call:
    def call(t: Inputs, d: torch.dtype) -> Any:
        hidden = [t(2, 4), t(2, 4)] if name == "lstm_cell" else t(2, 4)
        size = 4 * gates
        return getattr(torch, name)(t(2, 3, dtype=d), hidden, t(size, 3), t(size, 4), t(size), t(size))

    return call


def _resize(mode: str, dims: int, **options: Any) -> Call:
    return lambda t, d: functional.interpolate(t(1, 2, *[4] * dims, dtype=d), scale_factor=2, mode=mode, **options)


CUDA_CASES: dict[str, Call] = {
    "_convolution": _convolution(A._convolution.default, False, False, False, False),
    "_convolution.deprecated": _convolution(A._convolution.deprecated, False, False, False),
    "convolution": _convolution(A.convolution.default),
    "conv1d": _conv("conv1d", 2, 3, 8),
    "conv2d": _conv("conv2d", 2, 3, 8, 8),
    "conv3d": _conv("conv3d", 2, 3, 4, 4, 4),
    "conv_transpose1d": _conv("conv_transpose1d", 2, 3, 8),
    "conv_transpose2d.input": _conv("conv_transpose2d", 2, 3, 8, 8),
    "conv_transpose3d.input": _conv("conv_transpose3d", 2, 3, 4, 4, 4),
    "conv_tbc": lambda t, d: torch.conv_tbc(t(6, 2, 3, dtype=d), t(3, 3, 4), t(4)),
    "prelu": lambda t, d: functional.prelu(t(2, 3, dtype=d), t(3)),
    "addbmm": lambda t, d: torch.addbmm(t(2, 4), t(3, 2, 5, dtype=d), t(3, 5, 4)),
    "addmm": lambda t, d: torch.addmm(t(2, 4), t(2, 3, dtype=d), t(3, 4)),
    "addmv": lambda t, d: torch.addmv(t(2), t(2, 3, dtype=d), t(3)),
    "addr": lambda t, d: torch.addr(t(2, 3), t(2, dtype=d), t(3)),
    "baddbmm": lambda t, d: torch.baddbmm(t(3, 2, 4), t(3, 2, 5, dtype=d), t(3, 5, 4)),
    "bmm": lambda t, d: torch.bmm(t(3, 2, 5, dtype=d), t(3, 5, 4)),
    "chain_matmul": lambda t, d: A.chain_matmul([t(2, 3, dtype=d), t(3, 4), t(4, 5)]),
    "linalg_multi_dot": lambda t, d: torch.linalg.multi_dot([t(2, 3, dtype=d), t(3, 4), t(4, 5)]),
    "einsum": lambda t, d: torch.einsum("ab,bc,cd->ad", t(2, 3, dtype=d), t(3, 4), t(4, 5)),
    "linear": lambda t, d: functional.linear(t(2, 3, dtype=d), t(4, 3), t(4)),
    "matmul": lambda t, d: torch.matmul(t(5, 2, 3, dtype=d), t(3, 4)),
    "mm": lambda t, d: torch.mm(t(2, 3, dtype=d), t(3, 4)),
    "mv": lambda t, d: torch.mv(t(2, 3, dtype=d), t(3)),
    "linalg_vecdot": lambda t, d: torch.linalg.vecdot(t(2, 3, dtype=d), t(2, 3)),
    "scaled_dot_product_attention": lambda t, d: functional.scaled_dot_product_attention(
        t(1, 2, 4, 8, dtype=d), t(1, 2, 4, 8), t(1, 2, 4, 8)
    ),
    "lstm_cell": _cell("lstm_cell", 4),
    "gru_cell": _cell("gru_cell", 3),
    "rnn_tanh_cell": _cell("rnn_tanh_cell", 1),
    "rnn_relu_cell": _cell("rnn_relu_cell", 1),
    **{name: _unary(name) for name in UNARY.split()},
    "softplus": lambda t, d: functional.softplus(t(3, dtype=d)),
    "pow.Scalar": lambda t, d: torch.pow(2.0, t(3, dtype=d)),
    "pow.Tensor_Scalar": lambda t, d: torch.pow(t(3, dtype=d), 2.0),
    "pow.Tensor_Tensor": _same("pow", 3),
    "layer_norm": lambda t, d: functional.layer_norm(t(2, 4, dtype=d), (4,), t(4), t(4)),
    "native_layer_norm": lambda t, d: torch.native_layer_norm(t(2, 4, dtype=d), (4,), t(4), t(4), 1e-5),
    "group_norm": lambda t, d: functional.group_norm(t(2, 4, 3, dtype=d), 2, t(4), t(4)),
    "rms_norm": lambda t, d: functional.rms_norm(t(2, 4, dtype=d), (4,), t(4)),
    "frobenius_norm.dim": lambda t, d: A.frobenius_norm.dim(t(3, 4, dtype=d), [0, 1], False),
    "nuclear_norm": lambda t, d: torch.nuclear_norm(t(3, 4, dtype=d)),
    "nuclear_norm.dim": lambda t, d: torch.nuclear_norm(t(3, 4, dtype=d), dim=[0, 1]),
    "cosine_similarity": _same("cosine_similarity", 3, 4),
    "poisson_nll_loss": _loss("poisson_nll_loss"),
    "cosine_embedding_loss": lambda t, d: functional.cosine_embedding_loss(
        t(3, 4, dtype=d), t(3, 4, dtype=d), t.ones(3).to(d)
    ),
    "nll_loss": lambda t, d: functional.nll_loss(t(3, 4, dtype=d), t.index(3)),
    "nll_loss2d": lambda t, d: functional.nll_loss(t(3, 4, 2, 2, dtype=d), t.index(3, 2, 2)),
    "hinge_embedding_loss": lambda t, d: functional.hinge_embedding_loss(t(3, 4, dtype=d), t.ones(3, 4).to(d)),
    "kl_div": lambda t, d: functional.kl_div(t(3, 4, dtype=d), t(3, 4, dtype=d), reduction="batchmean"),
    **{name: _loss(name) for name in ["l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss", "soft_margin_loss"]},
    "margin_ranking_loss": lambda t, d: functional.margin_ranking_loss(t(3, dtype=d), t(3, dtype=d), t.ones(3).to(d)),
    "multilabel_margin_loss": lambda t, d: functional.multilabel_margin_loss(t(3, 4, dtype=d), t.index(3, 4)),
    "triplet_margin_loss": lambda t, d: functional.triplet_margin_loss(
        t(3, 4, dtype=d), t(3, 4, dtype=d), t(3, 4, dtype=d)
    ),
    "multi_margin_loss": lambda t, d: functional.multi_margin_loss(t(3, 4, dtype=d), t.index(3)),
    "binary_cross_entropy_with_logits": _loss("binary_cross_entropy_with_logits"),
    "dist": _same("dist", 3, 4),
    "pdist": lambda t, d: torch.pdist(t(3, 4, dtype=d)),
    "cdist": _same("cdist", 3, 4),
    "renorm": lambda t, d: torch.renorm(t(3, 4, dtype=d), 2, 0, 0.5),
    "logsumexp": lambda t, d: torch.logsumexp(t(3, 4, dtype=d), dim=1),
    "upsample_nearest1d": _resize("nearest", 1),
    "upsample_nearest2d": _resize("nearest", 2),
    "upsample_nearest3d": _resize("nearest", 3),
    "_upsample_nearest_exact1d": _resize("nearest-exact", 1),
    "_upsample_nearest_exact2d": _resize("nearest-exact", 2),
    "_upsample_nearest_exact3d": _resize("nearest-exact", 3),
    "upsample_linear1d": _resize("linear", 1),
    "upsample_bilinear2d": _resize("bilinear", 2),
    "_upsample_bilinear2d_aa": _resize("bilinear", 2, antialias=True),
    "upsample_trilinear3d": _resize("trilinear", 3),
    "upsample_bicubic2d": _resize("bicubic", 2),
    "_upsample_bicubic2d_aa": _resize("bicubic", 2, antialias=True),
    "prod.dim_int": lambda t, d: torch.prod(t(3, 4, dtype=d), dim=1),
    "sum.dim_IntList": lambda t, d: torch.sum(t(3, 4, dtype=d), dim=1),
    "softmax.int": lambda t, d: torch.softmax(t(3, 4, dtype=d), dim=1),
    "log_softmax.int": lambda t, d: torch.log_softmax(t(3, 4, dtype=d), dim=1),
    "cumprod": lambda t, d: torch.cumprod(t(3, 4, dtype=d), dim=1),
    "cumsum": lambda t, d: torch.cumsum(t(3, 4, dtype=d), dim=1),
    "linalg_vector_norm": lambda t, d: torch.linalg.vector_norm(t(3, 4, dtype=d)),
    "linalg_matrix_norm": lambda t, d: torch.linalg.matrix_norm(t(3, 4, dtype=d), 1),
    "linalg_matrix_norm.str_ord": lambda t, d: torch.linalg.matrix_norm(t(3, 4, dtype=d), "fro"),
    "norm.Scalar": lambda t, d: A.norm.Scalar(t(3, 4, dtype=d)),
    "norm.ScalarOpt_dim": lambda t, d: A.norm.ScalarOpt_dim(t(3, 4, dtype=d), 2, [1]),
    "addcdiv": lambda t, d: torch.addcdiv(t(3), t(3, dtype=d), t(3, dtype=d)),
    "addcmul": lambda t, d: torch.addcmul(t(3), t(3, dtype=d), t(3, dtype=d)),
    "atan2": _pair("atan2", 3),
    "cross": lambda t, d: torch.cross(t(2, 3, dtype=d), t(2, 3), dim=1),
    "grid_sampler": lambda t, d: functional.grid_sample(t(1, 2, 4, 4, dtype=d), t(1, 3, 3, 2), align_corners=False),
    "index_put": lambda t, d: torch.index_put(t(4), (t.index(2),), t(2, dtype=d)),
    "scatter_add": lambda t, d: torch.scatter_add(t(4), 0, t.index(3), t(3, dtype=d)),
    "bilinear": lambda t, d: functional.bilinear(t(2, 3, dtype=d), t(2, 3, dtype=d), t(4, 3, 3).to(d)),
    "dot": _same("dot", 3),
    "vdot": _same("vdot", 3),
    "tensordot": lambda t, d: torch.tensordot(t(2, 3, dtype=d), t(3, 4, dtype=d), dims=1),
}

# Not on CUDA's lists, or on the CPU's only: they run in the type of their inputs.
UNLISTED_CASES: dict[str, Call] = {
    "cat": lambda t, d: torch.cat([t(2, 3, dtype=d), t(2, 3)]),
    "cat of one type": lambda t, d: torch.cat([t(2, 3, dtype=d), t(2, 3, dtype=d)]),
    "stack": lambda t, d: torch.stack([t(2, 3, dtype=d), t(2, 3, dtype=d)]),
    "index_copy": lambda t, d: torch.index_copy(t(4, 3, dtype=d), 0, t.index(2), t(2, 3, dtype=d)),
    "trace": lambda t, d: torch.trace(t(3, 3, dtype=d)),
    "add": lambda t, d: t(3, dtype=d) + t(3, dtype=d),
    "add promoted": lambda t, d: t(3, dtype=d) + t(3),
    "mul": lambda t, d: t(3, dtype=d) * t(3, dtype=d),
    "relu": lambda t, d: functional.relu(t(3, dtype=d)),
    "gelu": lambda t, d: functional.gelu(t(3, dtype=d)),
    "silu": lambda t, d: functional.silu(t(3, dtype=d)),
    "tanh": lambda t, d: torch.tanh(t(3, dtype=d)),
    "sigmoid": lambda t, d: torch.sigmoid(t(3, dtype=d)),
    "leaky_relu": lambda t, d: functional.leaky_relu(t(3, dtype=d)),
    "elu": lambda t, d: functional.elu(t(3, dtype=d)),
    "hardswish": lambda t, d: functional.hardswish(t(3, dtype=d)),
    "mish": lambda t, d: functional.mish(t(3, dtype=d)),
    "glu": lambda t, d: functional.glu(t(4, dtype=d)),
    "dropout": lambda t, d: functional.dropout(t(3, 4, dtype=d), 0.5),
    "mean": lambda t, d: t(3, 4, dtype=d).mean(),
    "var": lambda t, d: t(3, 4, dtype=d).var(),
    "std": lambda t, d: t(3, 4, dtype=d).std(dim=1),
    "sqrt": lambda t, d: t(3, dtype=d).sqrt(),
    "batch_norm": lambda t, d: functional.batch_norm(t(4, 3, 2, 2, dtype=d), t(3), t(3), t(3), t(3), training=True),
    "instance_norm": lambda t, d: functional.instance_norm(t(4, 3, 2, 2, dtype=d)),
    "max_pool1d": lambda t, d: functional.max_pool1d(t(1, 2, 4, dtype=d), 2),
    "max_pool2d": lambda t, d: functional.max_pool2d(t(1, 2, 4, 4, dtype=d), 2),
    "max_pool3d": lambda t, d: functional.max_pool3d(t(1, 2, 4, 4, 4, dtype=d), 2),
    "avg_pool1d": lambda t, d: functional.avg_pool1d(t(1, 2, 4, dtype=d), 2),
    "avg_pool2d": lambda t, d: functional.avg_pool2d(t(1, 2, 4, 4, dtype=d), 2),
    "avg_pool3d": lambda t, d: functional.avg_pool3d(t(1, 2, 4, 4, 4, dtype=d), 2),
    "adaptive_avg_pool2d": lambda t, d: functional.adaptive_avg_pool2d(t(1, 2, 4, 4, dtype=d), 2),
    "adaptive_avg_pool3d": lambda t, d: functional.adaptive_avg_pool3d(t(1, 2, 4, 4, 4, dtype=d), 2),
    "adaptive_max_pool2d": lambda t, d: functional.adaptive_max_pool2d(t(1, 2, 4, 4, dtype=d), 2),
    "adaptive_max_pool3d": lambda t, d: functional.adaptive_max_pool3d(t(1, 2, 4, 4, 4, dtype=d), 2),
    "fractional_max_pool2d": lambda t, d: functional.fractional_max_pool2d(t(1, 2, 6, 6, dtype=d), 2, output_size=3),
    "reflection_pad1d": lambda t, d: functional.pad(t(1, 2, 4, dtype=d), (1, 1), mode="reflect"),
    "reflection_pad2d": lambda t, d: functional.pad(t(1, 2, 4, 4, dtype=d), (1, 1, 1, 1), mode="reflect"),
    "replication_pad1d": lambda t, d: functional.pad(t(1, 2, 4, dtype=d), (1, 1), mode="replicate"),
    "replication_pad2d": lambda t, d: functional.pad(t(1, 2, 4, 4, dtype=d), (1, 1, 1, 1), mode="replicate"),
    "replication_pad3d": lambda t, d: functional.pad(t(1, 2, 4, 4, 4, dtype=d), (1,) * 6, mode="replicate"),
    "circular pad": lambda t, d: functional.pad(t(1, 2, 4, dtype=d), (1, 1), mode="circular"),
    "unfold": lambda t, d: functional.unfold(t(1, 2, 4, 4, dtype=d), 2),
    "fold": lambda t, d: functional.fold(t(1, 8, 9, dtype=d), (4, 4), 2),
    "pixel_shuffle": lambda t, d: functional.pixel_shuffle(t(1, 4, 2, 2, dtype=d), 2),
    "grid_sample of one type": lambda t, d: functional.grid_sample(
        t(1, 2, 4, 4, dtype=d), t(1, 3, 3, 2, dtype=d), align_corners=False
    ),
    "grid_sample in 3d": lambda t, d: functional.grid_sample(
        t(1, 2, 4, 4, 4, dtype=d), t(1, 3, 3, 3, 3, dtype=d), align_corners=False
    ),
    "embedding": lambda t, d: functional.embedding(t.index(4), t(5, 3)),
    "cross_entropy": lambda t, d: functional.cross_entropy(t(3, 4, dtype=d), t.index(3)),
    "gather": lambda t, d: torch.gather(t(4, dtype=d), 0, t.index(3)),
    "topk": lambda t, d: torch.topk(t(4, dtype=d), 2)[0],
    "sort": lambda t, d: torch.sort(t(4, dtype=d))[0],
    "masked_fill": lambda t, d: t(4, dtype=d).masked_fill(t(4) > 0.5, -1.0),
    "where": lambda t, d: torch.where(t.index(4) > 1, t(4, dtype=d), t(4)),
    "amax": lambda t, d: t(3, 4, dtype=d).amax(dim=1),
    "clamp": lambda t, d: t(3, dtype=d).clamp(0.2, 0.4),
    "conv2d with same padding": lambda t, d: functional.conv2d(t(1, 2, 4, 4, dtype=d), t(3, 2, 3, 3), padding="same"),
    "local_response_norm": lambda t, d: functional.local_response_norm(t(1, 4, 3, 3, dtype=d), 2),
    "normalize": lambda t, d: functional.normalize(t(3, 4, dtype=d)),
    "logcumsumexp": lambda t, d: torch.logcumsumexp(t(4, dtype=d), dim=0),
    "softmin": lambda t, d: functional.softmin(t(3, 4, dtype=d), dim=1),
    "gumbel": lambda t, d: functional.gumbel_softmax(t(3, 4, dtype=d)),
    "outer": lambda t, d: torch.outer(t(3, dtype=d), t(4, dtype=d)),
    "multi-head attention": lambda t, d: functional.multi_head_attention_forward(
        t(4, 2, 8, dtype=d),
        t(4, 2, 8, dtype=d),
        t(4, 2, 8, dtype=d),
        8,
        2,
        t(24, 8),
        t(24),
        None,
        None,
        False,
        0.0,
        t(8, 8),
        t(8),
    )[0],
}
