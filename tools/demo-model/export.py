"""Writes the trained weights as a GGUF file: matrices in Q8_0, norms in F32, the vocabulary and a ChatML template."""
import gguf
import numpy as np

from vocab import SPECIAL

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def _metadata(writer, words, shape):
    writer.add_name("compy demo")
    writer.add_description("Tells little stories of Fern Valley; trained from scratch on text that a seeded grammar wrote")
    writer.add_license("MIT")
    writer.add_languages(["en"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_vocab_size(shape.vocab)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(shape.eps)
    shape.describe(writer)
    writer.add_rope_freq_base(shape.base)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(words.tokens)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_token_types([control if token in SPECIAL else normal for token in words.tokens])
    writer.add_token_merges([f"{left} {right}" for left, right in words.merges])
    writer.add_bos_token_id(words.end)
    writer.add_eos_token_id(words.end)
    writer.add_eot_token_id(words.stop)
    writer.add_pad_token_id(words.end)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def write(path, weights, words, shape):
    """Writes `weights` (numpy, GGUF's names without `.weight`, matrices (out, in)) to `path`."""
    writer = gguf.GGUFWriter(path, shape.architecture)
    _metadata(writer, words, shape)
    for name, weight in weights.items():
        weight = np.ascontiguousarray(weight, np.float32)
        if weight.ndim == 1 or name.endswith("ssm_conv1d"):
            writer.add_tensor(name if name.endswith((".bias", "ssm_a")) else name + ".weight", weight)
            continue
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name + ".weight", gguf.quants.quantize(weight, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
