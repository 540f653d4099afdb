"""DeepSeek V3.2 and GLM-5, as Hugging Face's modeling_deepseek_v32.py and modeling_glm_moe_dsa.py have them: rows of latent attention see the
tokens that an indexer gives the largest scores. Of equal scores, the earlier token counts."""
import numpy as np

import int16
from deepseek2 import DeepSeek2


class DeepSeek32(DeepSeek2):
    index_interleaved = False

    def is_full(self, layer):
        return True

    def hidden(self, x, layer, cache, seen):
        if self.is_full(layer):
            self.unseen = self.choose(x, layer, cache, super().hidden(x, layer, cache, seen))
        return self.unseen

    def choose(self, x, layer, cache, later):
        n, name, count = len(x), f"blk.{layer}.indexer", self.key("attention.indexer.top_k")
        made = self.linear(x, f"{name}.attn_k")
        centred = made - made.mean(axis=-1, keepdims=True)
        normed = centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1e-6)
        key = normed * self.weights[f"{name}.k_norm.weight"] + self.weights[f"{name}.k_norm.bias"]
        queries = self.linear(self.latent_queries(x, f"blk.{layer}"), f"{name}.attn_q_b").reshape(n, -1, key.shape[-1])
        own, self.interleaved = self.interleaved, self.index_interleaved
        key, queries = self.rotate(key[:, None], cache.length, layer), self.rotate(queries, cache.length, layer)
        self.interleaved = own
        if cache.rounds:
            key, queries = int16.keys(key), int16.queries(queries)
        before = cache.inputs[layer]
        keys = cache.inputs[layer] = key[:, 0] if before is None else np.concatenate([before, key[:, 0]])
        scores = np.einsum("nhm,nh->nm", np.maximum(np.einsum("nhd,md->nhm", queries, keys), 0), self.linear(x, f"{name}.proj"))
        order = np.argsort(np.where(later, np.inf, -scores), axis=-1, kind="stable")[:, :count]
        unchosen = np.ones_like(later)
        np.put_along_axis(unchosen, order, False, axis=-1)
        return unchosen | later


class GlmDsa(DeepSeek32):
    index_interleaved = True

    def is_full(self, layer):
        types = self.key("attention.indexer.types")
        return types is None or types[layer]
