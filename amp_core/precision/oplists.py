"""CUDA's autocast lists, and which of the CPU's own rules do not exist there.

Names are those of `torch.ops.aten` with their overload. A test reads the kernels registered for the AutocastCUDA and
AutocastCPU dispatch keys from the running torch and fails on any operation that no list here knows.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# One matrix product or convolution: rounded inputs, fp32 accumulation, one rounding of the result. The recurrent cells
# and attention are single fused kernels on CUDA, so they too round at their edges only.
TENSOR_CORE = _names("""
    _convolution _convolution.deprecated conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
    conv_transpose3d.input convolution addbmm addmm addmv addr baddbmm bmm linear matmul mm mv linalg_vecdot prelu
    scaled_dot_product_attention _scaled_dot_product_flash_attention lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
""")

# Chains of products: each product inside is rounded.
TENSOR_CORE_CHAIN = _names("chain_matmul einsum linalg_multi_dot")

# Recurrent layers: cuDNN's rule on CUDA, which a CPU build does not list; one fused call, rounded at its edges only.
RECURRENT = _names("""
    lstm.input lstm.data gru.input gru.data rnn_tanh.input rnn_tanh.data rnn_relu.input rnn_relu.data
""")

FP32 = _names("""
    acos asin cosh erfinv exp expm1 log log10 log1p log2 reciprocal rsqrt sinh tan pow.Scalar pow.Tensor_Scalar
    pow.Tensor_Tensor softplus layer_norm native_layer_norm group_norm rms_norm frobenius_norm.dim nuclear_norm
    nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss
    kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
    triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp
    upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
    _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d
    upsample_bicubic2d _upsample_bicubic2d_aa prod prod.dim_int softmax.int log_softmax.int cumprod cumsum
    linalg_vector_norm linalg_matrix_norm linalg_matrix_norm.str_ord sum sum.dim_IntList norm.Scalar norm.ScalarOpt_dim
""")

# The widest type among the inputs.
PROMOTE = _names("addcdiv addcmul atan2 cross grid_sampler index_put scatter_add")

# The same, and a product: accumulated in fp32 when it runs in fp16.
PROMOTE_PRODUCT = _names("bilinear dot vdot tensordot")

BANNED = _names("binary_cross_entropy")

# Listed for CUDA, but without a CPU kernel to call: nothing on a CPU reaches them.
UNREACHABLE = _names("_thnn_fused_gru_cell _thnn_fused_lstm_cell cudnn_convolution cudnn_convolution_transpose")

# CPU-only rules whose operation CUDA runs in fp16, and for which the CPU has no fp16 kernel.
HALF_ON_CUDA = _names("""
    adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d fractional_max_pool2d fractional_max_pool3d grid_sampler_2d
    grid_sampler_3d max_pool3d max_unpool2d max_unpool3d reflection_pad1d reflection_pad2d replication_pad1d
    replication_pad2d replication_pad3d
""")
