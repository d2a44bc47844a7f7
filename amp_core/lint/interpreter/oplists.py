"""Names of operations and modules by what autocast does to them.

The lists follow CUDA's autocast (torch 2.13, reference page of torch.amp): operations that run in the lower precision,
operations that run in float32; all others run in the widest type of their inputs.
"""

from __future__ import annotations


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


LOW = names(
    """matmul mm bmm mv addmm addmv addr baddbmm addbmm chain_matmul einsum linear conv1d conv2d conv3d conv_transpose1d
    conv_transpose2d conv_transpose3d prelu scaled_dot_product_attention"""
)
FLOAT32 = names(
    """acos asin cosh erfinv exp expm1 log log10 log2 log1p log_softmax softmax softmin softplus pow prod reciprocal
    rsqrt sinh tan sum cumprod cumsum norm renorm dist cdist pdist cosine_similarity layer_norm group_norm normalize
    logsumexp binary_cross_entropy_with_logits cross_entropy nll_loss l1_loss smooth_l1_loss mse_loss kl_div huber_loss
    ctc_loss hinge_embedding_loss margin_ranking_loss soft_margin_loss triplet_margin_loss multi_margin_loss
    multilabel_margin_loss cosine_embedding_loss poisson_nll_loss gaussian_nll_loss"""
)
SHAPES = names(
    """view reshape transpose permute flatten unflatten squeeze unsqueeze expand expand_as repeat contiguous chunk split
    t clone detach to narrow select repeat_interleave unbind flip roll index_select gather cpu cuda requires_grad_"""
)
SENSITIVE = names("sqrt rsqrt reciprocal log log2 log10 log1p")
GRADIENT_USES = names("norm square pow abs sum")

LOW_MODULES = names(
    "Linear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LazyLinear LazyConv1d LazyConv2d"
)
FLOAT32_MODULES = names("LayerNorm GroupNorm Softmax LogSoftmax Softmin Softplus CosineSimilarity")
SAME_MODULES = names(
    """ReLU ReLU6 GELU SiLU Mish LeakyReLU ELU CELU SELU Tanh Hardswish Hardtanh Dropout Dropout1d Dropout2d Identity
    Flatten Unflatten MaxPool1d MaxPool2d AvgPool1d AvgPool2d AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveMaxPool2d
    BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm Upsample PixelShuffle ZeroPad2d"""
)
SCALER_METHODS = names(
    """scale step update get_scale state_dict load_state_dict is_enabled get_growth_factor get_backoff_factor
    get_growth_interval set_growth_factor set_backoff_factor set_growth_interval"""
)
