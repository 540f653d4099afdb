"""GLM-4.5 with experts, as Hugging Face's modeling_glm4_moe.py has it: sigmoids weigh, and with a bias choose; layers that draft are left
out. Ling 2.0 (modeling_bailing_moe_v2.py): the same out of the best groups, whose two best experts count. Arcee's Trinity (modeling_afmoe.py): the same
behind gated attention, between norms. K-EXAONE and Hy3: the same behind Qwen3's attention. MiMo V2 Flash (modeling_mimo_v2_flash.py): the
same behind windows with sinks."""
import numpy as np

import int16
from gpt_oss import GptOss
from model import Model, sigmoid
from phi3 import Phi3
from qwen3moe import mixture


class Glm4Moe(Model):
    feed_forward_norm = "post_attention_norm"

    def feed_forward(self, x, name):
        if f"{name}.ffn_gate_inp.weight" not in self.weights:
            return super().feed_forward(x, name)
        scores = sigmoid(self.linear(x, f"{name}.ffn_gate_inp"))
        weighed = {"divided": self.key("expert_weights_norm"), "scale": self.key("expert_weights_scale")}
        return (mixture(self, x, name, scores, self.bias(scores, name), **weighed)
                + super().feed_forward(x, name, "_shexp"))

    def bias(self, scores, name):
        """What is added to scores for the choice."""
        return self.weights[f"{name}.exp_probs_b.bias"]


class BailingMoe2(Glm4Moe):
    feed_forward_norm = "ffn_norm"
    queries_keys_values = Phi3.queries_keys_values

    def bias(self, scores, name):
        bias = super().bias(scores, name)
        groups = (scores + bias).reshape(len(scores), self.key("expert_group_count"), -1)
        worth = np.sort(groups, axis=-1)[..., -2:].sum(axis=-1)
        best = np.argsort(-worth, axis=-1, kind="stable")[:, :self.key("expert_group_used_count")]
        hidden = np.full(groups.shape, -np.inf)
        np.put_along_axis(hidden, best[..., None], 0.0, axis=1)
        return hidden.reshape(scores.shape) + bias


class Afmoe(Glm4Moe):
    """Every fourth layer sees all and has no positions."""

    feed_forward_norm = "ffn_norm"

    def embed(self, tokens):
        return super().embed(tokens) * np.sqrt(self.key("embedding_length"))

    def window(self, layer):
        return self.key("attention.sliding_window") if layer % 4 != 3 else 0

    def frequencies_of(self, layer):
        return self.frequencies if layer % 4 != 3 else None

    def queries_keys_values(self, x, name):
        q, k, v = super().queries_keys_values(x, name)
        return np.concatenate([q, self.linear(x, f"{name}.attn_gate").reshape(q.shape)], axis=-1), k, v

    def layer(self, x, layer, cache):
        name = f"blk.{layer}"
        mixed = self.attention(self.norm(x, f"{name}.attn_norm"), layer, cache)
        x = x + self.norm(mixed, f"{name}.post_attention_norm")
        return x + self.norm(self.feed_forward(self.norm(x, f"{name}.ffn_norm"), name), f"{name}.post_ffw_norm")


class ExaoneMoe(Glm4Moe):
    """K-EXAONE, as modeling_exaone_moe.py has it: layers that see everything have no positions."""

    feed_forward_norm = "ffn_norm"

    def window(self, layer):
        return self.key("attention.sliding_window") if self.key("attention.sliding_window_pattern")[layer] else 0

    def frequencies_of(self, layer):
        return self.frequencies if self.window(layer) else None


class Dots1(Glm4Moe):
    """dots.llm1, as modeling_dots1.py has it."""

    feed_forward_norm = "ffn_norm"


class MiMo2(Glm4Moe):
    """Layers with a window have their own KV heads, rotary base and sinks; values are scaled, and their heads narrower."""

    feed_forward_norm = "ffn_norm"

    def __init__(self, reader, context):
        super().__init__(reader, context)
        self.near = float(self.key("rope.freq_base_swa")) ** -(np.arange(0, self.rotated, 2) / self.rotated)
        self.heads = self.heads[0]
        self.layer_kv_heads = self.kv_heads

    def window(self, layer):
        return self.key("attention.sliding_window") if self.key("attention.sliding_window_pattern")[layer] else 0

    def frequencies_of(self, layer):
        return self.near if self.window(layer) else self.frequencies

    def attention(self, x, layer, cache):
        self.kv_heads = self.layer_kv_heads[layer]
        return super().attention(x, layer, cache)

    def queries_keys_values(self, x, name):
        heads = lambda part, count: self.linear(x, f"{name}.attn_{part}").reshape(len(x), count, -1)
        return heads("q", self.heads), heads("k", self.kv_heads), heads("v", self.kv_heads) * self.key("attention.value_scale")

    def attention_weights(self, scores, layer):
        if f"blk.{layer}.attn_sinks.weight" not in self.weights:
            return super().attention_weights(scores, layer)
        return GptOss.attention_weights(self, scores, layer)

    def feed_forward(self, x, name):
        if f"{name}.ffn_gate_inp.weight" not in self.weights:
            return Model.feed_forward(self, x, name)
        scores = sigmoid(self.linear(x, f"{name}.ffn_gate_inp"))
        return mixture(self, x, name, scores, self.bias(scores, name), divided=True, scale=1.0)


class HyV3(Glm4Moe):
    """Hy3, as modeling_hy_v3.py has it."""

    feed_forward_norm = "ffn_norm"

    def bias(self, scores, name):
        return self.weights[f"{name}.exp_probs_b"]


class UnitExperts(Glm4Moe):
    """Blocks whose activation a subclass defines in `unit`: part `exp` for chosen experts, `shexp` for shared experts and dense blocks."""

    feed_forward_norm = "ffn_norm"

    def feed_forward(self, x, name, suffix=""):
        if not suffix and f"{name}.ffn_gate_inp.weight" in self.weights:
            return self.experts(x, name) + self.feed_forward(x, name, "_shexp")
        gate, up, down = (self.weights[f"{name}.ffn_{part}{suffix}.weight"] for part in ("gate", "up", "down"))
        return self.unit(x @ gate.T, x @ up.T, name, "shexp") @ down.T

    def experts(self, x, name):
        scores = sigmoid(self.linear(x, f"{name}.ffn_gate_inp"))
        gate, up, down = (self.weights[f"{name}.ffn_{part}_exps.weight"] for part in ("gate", "up", "down"))
        out = np.zeros_like(x)
        for row, (h, score, key) in enumerate(zip(x, scores, scores + self.bias(scores, name))):
            chosen = np.argsort(-key, kind="stable")[:self.key("expert_used_count")]
            for e in chosen:
                weight = float(self.key("expert_weights_scale")) * score[e] / score[chosen].sum()
                out[row] += weight * (down[e] @ self.unit(gate[e] @ h, up[e] @ h, name, "exp"))
        return out


class MiniMaxM3(UnitExperts):
    """MiniMax M3 as in modeling_minimax_m3_vl.py, with gpt-oss's activation. The query heads of a KV head attend to the blocks of tokens with
    the largest scores: a block's score is that of its best token. Of equal scores, the earlier block wins."""

    def unit(self, gate, up, name, part):
        gate, up = np.minimum(gate, 7), np.clip(up, -7, 7)
        return gate * sigmoid(1.702 * gate) * (up + 1)

    def hidden(self, x, layer, cache, seen):
        later = super().hidden(x, layer, cache, seen)
        if layer < self.key("leading_dense_block_count"):
            return later
        name, indexer = f"blk.{layer}.indexer", lambda key: self.key(f"attention.indexer.{key}")
        made = [self.linear(x, f"{name}.{part}_proj").reshape(len(x), -1, indexer("key_length")) for part in "qk"]
        queries, key = (self.rotate(self.norm(rows, f"{name}.{part}_norm"), cache.length, layer) for rows, part in zip(made, "qk"))
        if cache.rounds:
            queries, key = int16.queries(queries), int16.keys(key)
        before = cache.inputs[layer]
        keys = cache.inputs[layer] = key[:, 0] if before is None else np.concatenate([before, key[:, 0]])
        scores = np.where(later, -np.inf, np.einsum("nhd,md->hnm", queries, keys))
        length = indexer("block_size")
        padded = np.pad(scores, [(0, 0), (0, 0), (0, -seen % length)], constant_values=-np.inf)
        blocks = padded.reshape(*scores.shape[:2], -1, length).max(axis=-1)
        own = (cache.length + np.arange(len(x)))[:, None] // length
        behind = own - np.arange(blocks.shape[-1])
        blocks = np.where((behind >= 0) & (behind < indexer("local_blocks")), np.inf, blocks)
        order = np.argsort(-blocks, axis=-1, kind="stable")[..., :indexer("top_k")]
        unchosen = np.ones(blocks.shape, dtype=bool)
        np.put_along_axis(unchosen, order, False, axis=-1)
        return (np.repeat(unchosen, length, axis=-1)[..., :seen] | later)[:, None]
