"""The network, llama's: RMS norm, rotary positions on neighbouring pairs, grouped heads, SwiGLU, tied embeddings. In JAX."""
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Shape:
    """Every matrix has a multiple of 64 columns, so that 32-weight blocks fit and vector kernels find no remainder."""
    vocab: int = 1280
    hidden: int = 192
    layers: int = 4
    heads: int = 6
    kv_heads: int = 2
    ffn: int = 384
    context: int = 512
    base: float = 10000.0
    eps: float = 1e-5
    architecture: str = "llama"

    @property
    def head(self):
        return self.hidden // self.heads

    def describe(self, writer):
        """The keys that are llama's."""
        writer.add_block_count(self.layers)
        writer.add_rope_dimension_count(self.head)


def init(shape, seed):
    """Named weights; a matrix is (out, in), as in GGUF. Names are GGUF's."""
    rng = np.random.default_rng(seed)
    normal = lambda rows, columns, std: jnp.asarray(rng.normal(0, std, (rows, columns)), jnp.float32)
    wide, kv = shape.hidden, shape.kv_heads * shape.head
    weights = {"token_embd": normal(shape.vocab, wide, 0.05), "output_norm": jnp.ones(wide)}
    for i in range(shape.layers):
        for name, rows, columns, std in [
            ("attn_q", wide, wide, wide ** -0.5), ("attn_k", kv, wide, wide ** -0.5), ("attn_v", kv, wide, wide ** -0.5),
            ("attn_output", wide, wide, 0.01), ("ffn_gate", shape.ffn, wide, wide ** -0.5),
            ("ffn_up", shape.ffn, wide, wide ** -0.5), ("ffn_down", wide, shape.ffn, 0.01),
        ]:
            weights[f"blk.{i}.{name}"] = normal(rows, columns, std)
        weights[f"blk.{i}.attn_norm"] = weights[f"blk.{i}.ffn_norm"] = jnp.ones(wide)
    return weights


def _norm(x, weight, eps):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + eps) * weight


def _rope(x, base):  # (batch, tokens, heads, head)
    tokens, head = x.shape[1], x.shape[-1]
    angle = np.arange(tokens)[:, None] * base ** (-np.arange(0, head, 2) / head)
    cos, sin = (jnp.asarray(f(angle), jnp.float32)[None, :, None] for f in (np.cos, np.sin))
    a, b = x[..., 0::2], x[..., 1::2]
    return jnp.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(x.shape)


@jax.custom_vjp
def _attend(q, k, v, mask):
    """softmax(q k + mask) v. q: (batch, kv heads, heads each, tokens, head), scaled; k, v: (batch, kv heads, tokens, head)."""
    return _attend_forward(q, k, v, mask)[0]


def _attend_forward(q, k, v, mask):
    rows = (*q.shape[:2], -1, q.shape[-1])  # the heads that share a key: one matrix
    score = (q.reshape(rows) @ k.swapaxes(-1, -2)).reshape(*q.shape[:4], -1)
    p = jax.nn.softmax(score + mask).reshape(*rows[:3], k.shape[2])
    out = (p @ v).reshape(q.shape)
    return out, (q, k, v, p, out)


def _attend_backward(kept, g):
    """By hand, for XLA's own way takes nearly twice as long on a CPU."""
    q, k, v, p, out = kept
    rows = (*q.shape[:2], -1, q.shape[-1])
    q, g, out = q.reshape(rows), g.reshape(rows), out.reshape(rows)
    d_score = p * (g @ v.swapaxes(-1, -2) - jnp.sum(g * out, -1, keepdims=True))
    d_k, d_v = d_score.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g
    return (d_score @ k).reshape(kept[0].shape), d_k, d_v, None


_attend.defvjp(_attend_forward, _attend_backward)


def _attention(weights, prefix, x, mask, shape):
    batch, tokens, _ = x.shape
    q, k, v = ((x @ weights[prefix + name].T).reshape(batch, tokens, -1, shape.head) for name in ("attn_q", "attn_k", "attn_v"))
    q, k, v = (t.swapaxes(1, 2) for t in (_rope(q, shape.base) * shape.head ** -0.5, _rope(k, shape.base), v))
    q = q.reshape(batch, shape.kv_heads, -1, tokens, shape.head)
    out = _attend(q, k, v, mask).reshape(batch, -1, tokens, shape.head)
    return out.swapaxes(1, 2).reshape(batch, tokens, -1) @ weights[prefix + "attn_output"].T


def forward(weights, tokens, segments, shape):
    """Logits (batch, tokens, vocab). A token sees earlier ones of its own segment (document) only."""
    order = np.tril(np.ones((tokens.shape[1],) * 2, bool))
    mask = jnp.where(order & (segments[:, :, None] == segments[:, None]), 0.0, -1e9)[:, None, None]
    x = weights["token_embd"][tokens]
    for i in range(shape.layers):
        prefix = f"blk.{i}."
        x = x + _attention(weights, prefix, _norm(x, weights[prefix + "attn_norm"], shape.eps), mask, shape)
        h = _norm(x, weights[prefix + "ffn_norm"], shape.eps)
        h = jax.nn.silu(h @ weights[prefix + "ffn_gate"].T) * (h @ weights[prefix + "ffn_up"].T)
        x = x + h @ weights[prefix + "ffn_down"].T
    return _norm(x, weights["output_norm"], shape.eps) @ weights["token_embd"].T


def loss(weights, batch, shape):
    """Mean cross-entropy over the tokens that the model is to learn to say."""
    tokens, segments, say = batch
    logits = forward(weights, tokens[:, :-1], segments[:, :-1], shape)
    log_p = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], -1)[..., 0]
    return -jnp.sum(log_p * say[:, 1:]) / jnp.sum(say[:, 1:])


def _orthogonal(g):
    """The nearest matrix with equal singular values, roughly: five Newton-Schulz steps (K. Jordan's Muon, 2024)."""
    tall = g.shape[0] > g.shape[1]
    x = g.T if tall else g
    x = x / (jnp.linalg.norm(x) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if tall else x


def update(weights, state, grads, step, rate):
    """One step: Muon for the layers' matrices, Adam for embeddings and norms. `rate` in 0..1 scales both."""
    new, kept = {}, {}
    for name, w in weights.items():
        g, (m, v) = grads[name], state[name]
        if w.ndim == 2 and name.startswith("blk."):
            m = 0.95 * m + g
            delta = 0.02 * max(1.0, w.shape[0] / w.shape[1]) ** 0.5 * _orthogonal(g + 0.95 * m) + 0.002 * w
        else:
            m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g * g
            delta = 0.004 * (m / (1 - 0.9 ** step)) / (jnp.sqrt(v / (1 - 0.98 ** step)) + 1e-9)
        new[name], kept[name] = w - rate * delta, (m, v)
    return new, kept
