"""DeepSeekMoE (arXiv 2401.06066), as modeling_deepseek.py beside its checkpoints has it: the softmax over all weighs as it is. Ling Lite, as
modeling_bailing_moe.py beside its checkpoints has it: in every layer, and divided by the sum of the chosen."""
from llama import Llama
from model import softmax
from qwen3moe import mixture


class Deepseek(Llama):
    divided = False

    def feed_forward(self, x, name):
        if f"{name}.ffn_gate_inp.weight" not in self.weights:
            return super().feed_forward(x, name)
        scores, scale = softmax(self.linear(x, f"{name}.ffn_gate_inp")), self.key("expert_weights_scale")
        return (mixture(self, x, name, scores, divided=self.divided, scale=scale)
                + super().feed_forward(x, name, "_shexp"))


class BailingMoe(Deepseek):
    divided = True
