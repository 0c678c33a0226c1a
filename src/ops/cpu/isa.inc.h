/* The kernels of one instruction set, and their table. The including file defines LANES (floats in a vector),
 * TILE_ROWS and TILE_VECS (rows, and vectors across, of the register tile of the product), ISA (the suffix of the
 * table's name) and ISA_NAME. */
#include "ops/cpu/kernels.h"

#include "ops/cpu/vec.inc.h"

#include "ops/cpu/gemm.inc.h"
#include "ops/cpu/dots.inc.h"
#include "ops/cpu/rows.inc.h"
#include "ops/cpu/activate.inc.h"
#include "ops/cpu/scan.inc.h"
#include "ops/cpu/rnn.inc.h"
#include "ops/cpu/attn.inc.h"
#include "ops/cpu/sscan.inc.h"

#define TABLE_NAME_(isa) mr_cpu_kernels_##isa
#define TABLE_NAME(isa) TABLE_NAME_(isa)

const mr_cpu_kernels TABLE_NAME(ISA) = {
    .name = ISA_NAME,
    .product = PRODUCT(f32),
    .product_bf16 = PRODUCT(rounded),
    .dots = dots,
    .finish = finish_row,
    .gelu_bwd = gelu_bwd_row,
    .dropout = dropout_row,
    .add = add_row,
    .axpy = axpy_row,
    .scale = scale_row,
    .affine = affine_row,
    .norm_fwd = norm_fwd_row,
    .norm_bwd = norm_bwd_row,
    .conv = conv_row,
    .conv_grad = conv_grad_row,
    .scan_fwd = SCAN_TABLE(fwd_),
    .scan_bwd = SCAN_TABLE(bwd_),
    .effect_fwd = SCAN_TABLE(effect_fwd_),
    .effect_bwd = SCAN_TABLE(effect_bwd_),
    .scan_log = {log_gru, log_lstm, log_lstm_norm},
    .given_fwd = given_fwd,
    .given_bwd = given_bwd,
    .given_effect_fwd = given_effect_fwd,
    .given_effect_bwd = given_effect_bwd,
    .candidate = candidate_row,
    .candidate_bwd = candidate_bwd_row,
    .turn = turn_row,
    .turned_dot = turned_dot,
    .soften = soften_row,
    .soften_bwd = soften_bwd_row,
    .max = max_row,
    .exp_sum = exp_sum_row,
    .tanh = tanh_row,
    .tanh_bwd = tanh_bwd_row,
    .sumsq = sumsq_row,
    .adam = adam_row,
    .rnn_fwd = {lstm_fwd, gru_after_fwd, gru_before_gates, gru_before_fwd},
    .rnn_bwd = {lstm_bwd, gru_after_bwd, gru_before_bwd, gru_before_gates_bwd},
    .activate = activate_row,
    .activate_bwd = activate_bwd_row,
    .sscan_rates = sscan_rates,
    .sscan_fwd = sscan_fwd,
    .sscan_bwd = sscan_bwd,
    .sscan_effect = sscan_effect,
};
