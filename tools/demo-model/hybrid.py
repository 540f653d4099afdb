"""Qwen3.5's network, small: layers of Gated DeltaNet, every fourth of attention with output gates, and behind them one that drafts the
token after next (MTP). In JAX; what it has in common with llama's is model.py's."""
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from model import _attend, _norm, update  # noqa: F401  train.py updates by it

DRAFT_WEIGHT = 0.3  # of the drafts' loss beside the model's own
TAPS = 4


@dataclass(frozen=True)
class Shape:
    """Every matrix has a multiple of 64 columns, as in model.py."""
    vocab: int = 768
    hidden: int = 128
    layers: int = 4
    interval: int = 4  # layers to one of attention
    heads: int = 4
    kv_heads: int = 2
    head: int = 32
    rotated: int = 16
    key_heads: int = 2
    value_heads: int = 4
    delta_head: int = 32
    ffn: int = 256
    context: int = 512
    base: float = 10000.0
    eps: float = 1e-5
    architecture: str = "qwen35"

    @property
    def channels(self):
        return (2 * self.key_heads + self.value_heads) * self.delta_head

    def is_attention(self, layer):
        return layer >= self.layers or (layer + 1) % self.interval == 0

    def describe(self, writer):
        """The keys beside model.py's."""
        writer.add_block_count(self.layers + 1)
        writer.add_key_length(self.head)
        writer.add_value_length(self.head)
        writer.add_rope_dimension_count(self.rotated)
        writer.add_array("qwen35.rope.dimension_sections", [3, 3, 2, 0])
        for key, value in [
            ("ssm.conv_kernel", TAPS), ("ssm.inner_size", self.value_heads * self.delta_head),
            ("ssm.state_size", self.delta_head), ("ssm.time_step_rank", self.value_heads),
            ("ssm.group_count", self.key_heads), ("full_attention_interval", self.interval), ("nextn_predict_layers", 1),
        ]:
            writer.add_uint32(f"qwen35.{key}", value)


def init(shape, seed):
    """Named weights; a matrix is (out, in), as in GGUF. Names are GGUF's."""
    rng = np.random.default_rng(seed)
    normal = lambda rows, columns, std: jnp.asarray(rng.normal(0, std, (rows, columns)), jnp.float32)
    wide, kv, inner = shape.hidden, shape.kv_heads * shape.head, shape.value_heads * shape.delta_head
    weights = {"token_embd": normal(shape.vocab, wide, 0.05), "output_norm": jnp.ones(wide)}
    for i in range(shape.layers + 1):
        block = f"blk.{i}."
        matrices = [("ffn_gate", shape.ffn, wide, wide ** -0.5), ("ffn_up", shape.ffn, wide, wide ** -0.5), ("ffn_down", wide, shape.ffn, 0.01)]
        if shape.is_attention(i):
            both = 2 * shape.heads * shape.head  # each head's query, then its gate
            matrices += [("attn_q", both, wide, wide ** -0.5), ("attn_k", kv, wide, wide ** -0.5), ("attn_v", kv, wide, wide ** -0.5), ("attn_output", wide, both // 2, 0.01)]
            for norm in ("attn_q_norm", "attn_k_norm"):
                weights[block + norm] = jnp.ones(shape.head)
        else:
            matrices += [("attn_qkv", shape.channels, wide, wide ** -0.5), ("attn_gate", inner, wide, wide ** -0.5), ("ssm_alpha", shape.value_heads, wide, 0.02), ("ssm_beta", shape.value_heads, wide, 0.02), ("ssm_out", wide, inner, 0.01)]
            weights[block + "ssm_conv1d"] = jnp.asarray(np.eye(TAPS)[-1] + rng.normal(0, 0.1, (shape.channels, TAPS)), jnp.float32)
            weights[block + "ssm_a"] = -jnp.asarray(np.linspace(0.5, 2, shape.value_heads), jnp.float32)
            weights[block + "ssm_dt.bias"] = jnp.full(shape.value_heads, -3.0)
            weights[block + "ssm_norm"] = jnp.ones(shape.delta_head)
        for name, rows, columns, std in matrices:
            weights[block + name] = normal(rows, columns, std)
        weights[block + "attn_norm"] = weights[block + "post_attention_norm"] = jnp.ones(wide)
    draft = f"blk.{shape.layers}.nextn."
    weights[draft + "eh_proj"] = normal(wide, 2 * wide, (2 * wide) ** -0.5)
    for norm in ("enorm", "hnorm", "shared_head_norm"):
        weights[draft + norm] = jnp.ones(wide)
    return weights


def _rope(x, shape):  # (batch, tokens, heads, head)
    half = shape.rotated // 2
    angle = np.arange(x.shape[1])[:, None] * shape.base ** (-np.arange(half) / half)
    cos, sin = (jnp.asarray(f(angle), jnp.float32)[None, :, None] for f in (np.cos, np.sin))
    a, b, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos, rest], -1)


def _attention(weights, block, x, mask, shape):
    batch, tokens, _ = x.shape
    part = lambda name: (x @ weights[block + name].T).reshape(batch, tokens, -1, shape.head)
    both = part("attn_q").reshape(batch, tokens, shape.heads, 2, shape.head)
    q, gate = _norm(both[..., 0, :], weights[block + "attn_q_norm"], shape.eps), both[..., 1, :]
    k = _norm(part("attn_k"), weights[block + "attn_k_norm"], shape.eps)
    q, k, v = (t.swapaxes(1, 2) for t in (_rope(q, shape) * shape.head ** -0.5, _rope(k, shape), part("attn_v")))
    q = q.reshape(batch, shape.kv_heads, -1, tokens, shape.head)
    out = _attend(q, k, v, mask[:, None, None]).reshape(batch, -1, tokens, shape.head).swapaxes(1, 2)
    return (out * jax.nn.sigmoid(gate)).reshape(batch, tokens, -1) @ weights[block + "attn_output"].T


def _before(x, same, steps):
    """The row so many tokens before, where it is of the same document; else zeros. same: (batch, tokens, tokens)."""
    if steps == 0:
        return x
    there = jnp.diagonal(same, -steps, 1, 2)  # (batch, tokens - steps)
    return jnp.pad(x[:, :-steps] * there[..., None], ((0, 0), (steps, 0), (0, 0)))


def _delta_net(weights, block, x, same, shape):
    """All of a row's tokens at once: what each writes into the state solves a triangular system ("Parallelizing Linear Transformers
    with the Delta Rule", arXiv 2406.06484). Value head h has key head h % key heads."""
    batch, tokens, _ = x.shape
    dim = shape.delta_head
    mixed, taps = x @ weights[block + "attn_qkv"].T, weights[block + "ssm_conv1d"]
    mixed = jax.nn.silu(sum(_before(mixed, same, TAPS - 1 - i) * taps[:, i] for i in range(TAPS)))
    heads = mixed.reshape(batch, tokens, -1, dim).swapaxes(1, 2)  # (batch, heads, tokens, dim)
    q, k, v = jnp.split(heads, [shape.key_heads, 2 * shape.key_heads], 1)
    unit = lambda t: t * jax.lax.rsqrt(jnp.sum(t * t, -1, keepdims=True) + 1e-10)
    shared = np.arange(shape.value_heads) % shape.key_heads
    q, k = unit(q)[:, shared] * dim ** -0.5, unit(k)[:, shared]
    beta = jax.nn.sigmoid(x @ weights[block + "ssm_beta"].T).swapaxes(1, 2)[..., None]
    step = jax.nn.softplus(x @ weights[block + "ssm_alpha"].T + weights[block + "ssm_dt.bias"])
    decay = jnp.cumsum((weights[block + "ssm_a"] * step).swapaxes(1, 2), -1)
    order = np.tril(np.ones((tokens, tokens), bool))
    faded = jnp.exp(jnp.where(order, decay[..., :, None] - decay[..., None, :], 0.0)) * (order & same[:, None])
    system = np.eye(tokens) + beta * faded * (k @ k.swapaxes(-1, -2)) * ~np.eye(tokens, dtype=bool)
    written = jax.scipy.linalg.solve_triangular(system, beta * v, lower=True, unit_diagonal=True)
    out = (faded * (q @ k.swapaxes(-1, -2))) @ written
    gate = jax.nn.silu(x @ weights[block + "attn_gate"].T)
    out = _norm(out, weights[block + "ssm_norm"], shape.eps).swapaxes(1, 2).reshape(batch, tokens, -1)
    return (out * gate) @ weights[block + "ssm_out"].T


def _layer(weights, i, x, mask, same, shape):
    block = f"blk.{i}."
    h = _norm(x, weights[block + "attn_norm"], shape.eps)
    x = x + (_attention(weights, block, h, mask, shape) if shape.is_attention(i) else _delta_net(weights, block, h, same, shape))
    h = _norm(x, weights[block + "post_attention_norm"], shape.eps)
    return x + (jax.nn.silu(h @ weights[block + "ffn_gate"].T) * (h @ weights[block + "ffn_up"].T)) @ weights[block + "ffn_down"].T


def forward(weights, tokens, segments, shape):
    """Logits of the next token, and those of the layer that drafts: both (batch, tokens, vocab)."""
    order = np.tril(np.ones((tokens.shape[1],) * 2, bool))
    same = segments[:, :, None] == segments[:, None]
    mask = jnp.where(order & same, 0.0, -1e9)
    embedded = x = weights["token_embd"][tokens]
    for i in range(shape.layers):
        x = _layer(weights, i, x, mask, same, shape)
    hidden = _norm(x, weights["output_norm"], shape.eps)
    draft = f"blk.{shape.layers}.nextn."
    # A token beside the row before it; "DeepSeek-V3 Technical Report" (arXiv 2412.19437), section 2.2.
    e = _norm(embedded, weights[draft + "enorm"], shape.eps)
    h = _norm(_before(hidden, same, 1), weights[draft + "hnorm"], shape.eps)
    y = _layer(weights, shape.layers, jnp.concatenate([e, h], -1) @ weights[draft + "eh_proj"].T, mask, same, shape)
    y = _norm(y, weights[draft + "shared_head_norm"], shape.eps)
    return hidden @ weights["token_embd"].T, y @ weights["token_embd"].T


def loss(weights, batch, shape):
    """Mean cross-entropy over the tokens that the model is to learn to say, and beside it that of the drafts of the same tokens."""
    tokens, segments, say = batch
    both = forward(weights, tokens[:, :-1], segments[:, :-1], shape)
    means = [
        -jnp.sum(jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], -1)[..., 0] * say[:, 1:]) / jnp.sum(say[:, 1:])
        for logits in both
    ]
    return means[0] + DRAFT_WEIGHT * means[1]
