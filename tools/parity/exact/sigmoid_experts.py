"""GLM-4.5 with experts, as Hugging Face's modeling_glm4_moe.py has it: sigmoids weigh, and with a bias choose; layers that draft are left
out."""
from model import Model, sigmoid
from qwen3moe import mixture


class Glm4Moe(Model):
    feed_forward_norm = "post_attention_norm"

    def __init__(self, reader, context):
        super().__init__(reader, context)
        self.layers -= self.key("nextn_predict_layers", 0)

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
