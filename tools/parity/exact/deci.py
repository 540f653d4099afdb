"""Llama Nemotron's searched layers (arXiv 2411.19146): some have no attention, a matrix for it, or no feed-forward half."""
from llama import Llama


class Deci(Llama):
    def __init__(self, reader, context):
        super().__init__(reader, context)
        self.heads = max(self.heads)

    def attention(self, x, layer, cache):
        kv_heads = self.key("attention.head_count_kv")[layer]
        if kv_heads == 0:
            return self.linear(x, f"blk.{layer}.attn_output")
        self.kv_heads = kv_heads
        return super().attention(x, layer, cache)

    def layer(self, x, layer, cache):
        name = f"blk.{layer}"
        if self.key("attention.head_count")[layer] > 0:
            x = x + self.attention(self.norm(x, f"{name}.attn_norm"), layer, cache)
        if self.key("feed_forward_length")[layer] > 0:
            x = x + self.feed_forward(self.norm(x, f"{name}.ffn_norm"), name)
        return x
