"""The mixture of experts: the softmax over all chooses, and the chosen weights are divided by their sum."""
import numpy as np

from model import Model, silu, softmax


def mixture(model, x, name, scores, bias=0, divided=True, scale=1, act=silu):
    """Experts of the largest score + bias, weighed by scale * score, with `divided` over the sum of the chosen scores."""
    gate, up, down = (model.weights[f"{name}.ffn_{part}_exps.weight"] for part in ("gate", "up", "down"))
    out = np.zeros_like(x)
    for row, (h, score, key) in enumerate(zip(x, scores, scores + bias)):
        chosen = np.argsort(-key, kind="stable")[:model.key("expert_used_count")]
        for expert in chosen:
            weight = scale * score[expert] / (score[chosen].sum() if divided else 1)
            out[row] += weight * (down[expert] @ (act(gate[expert] @ h) * (up[expert] @ h)))
    return out


class Qwen3Moe(Model):
    def feed_forward(self, x, name):
        return mixture(self, x, name, softmax(self.linear(x, f"{name}.ffn_gate_inp")))
