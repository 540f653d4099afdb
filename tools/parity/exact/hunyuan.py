"""Hunyuan's dense models: heads are normed after they were rotated."""
from model import Model


class HunyuanDense(Model):
    def place(self, q, k, layer, start):
        name = f"blk.{layer}"
        q, k = self.rotate(q, start, layer), self.rotate(k, start, layer)
        return self.norm(q, f"{name}.attn_q_norm"), self.norm(k, f"{name}.attn_k_norm")
