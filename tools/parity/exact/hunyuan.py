"""Hunyuan's models: heads are normed after they were rotated. With experts, as Hugging Face's modeling_hunyuan_v1_moe.py has it, the softmax
over all chooses and is divided by the sum of the chosen, and one more expert sees every token. Maincoder: the same heads, with Llama's pairs."""
from model import Model, softmax
from qwen3moe import mixture


class HunyuanDense(Model):
    def place(self, q, k, layer, start):
        name = f"blk.{layer}"
        q, k = self.rotate(q, start, layer), self.rotate(k, start, layer)
        return self.norm(q, f"{name}.attn_q_norm"), self.norm(k, f"{name}.attn_k_norm")


class HunyuanMoe(HunyuanDense):
    def feed_forward(self, x, name):
        scores = softmax(self.linear(x, f"{name}.ffn_gate_inp"))
        return mixture(self, x, name, scores) + super().feed_forward(x, name, "_shexp")


class Maincoder(HunyuanDense):
    interleaved = True
