"""What bench/model.ts measures of compy, measured of OpenVINO GenAI. lab/peers.ts starts it with the Python that the package is
installed for:

  python openvino_speed.py '{"model": FILE, "prefill": 512, "decode": 32, "sequences": [1, 16], "threads": 2}'

Its reader of GGUF files takes llama, qwen2 and qwen3 and wants a few keys that do not matter for speed: a copy of the file that has
them is made in a temporary folder. Steps are timed one by one: of decoding those count in which every sequence gets a token. Prints one
JSON object: {"rows": [{"work", "sequences", "tokens_per_second"}, ...], "isa", "rss_mb", "load_ms"}.
"""

import json
import math
import os
import sys
import tempfile
import time

import numpy
import openvino
import openvino_genai
from gguf import GGUFReader, GGUFValueType, GGUFWriter

SAMPLES = 2
STEP_TOKENS = 512  # compy's, too
BLOCK_TOKENS = 32  # of its KV cache on CPUs

# general.file_type of a file whose matrices are of a tensor type
FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q4_K": 15, "Q6_K": 18}


def with_keys(source, target):
    """Copies a GGUF file and adds the keys that the reader asks for."""
    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        of = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), field.types[0], of)
    matrix = next(t for t in reader.tensors if t.name == "blk.0.ffn_down.weight").tensor_type.name
    if matrix not in FILE_TYPES:
        raise SystemExit(f"OpenVINO GenAI does not read weights in {matrix}: choose one of {', '.join(FILE_TYPES)}")
    end = int(reader.fields["tokenizer.ggml.eos_token_id"].contents())
    for key, value in {
        "general.file_type": FILE_TYPES[matrix],
        "general.quantization_version": 2,
        "tokenizer.ggml.padding_token_id": end,
        "tokenizer.ggml.bos_token_id": end,
    }.items():
        if key not in reader.fields:
            writer.add_uint32(key, value)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


class Peer:
    def __init__(self, model, prefill, decode, sequences, threads):
        self.prompt_tokens, self.answer_tokens, self.requests = prefill, decode, 0
        # While the last prompts are prefilled the first sequences already decode.
        self.spare = math.ceil(max(sequences) * prefill / STEP_TOKENS) + 2
        blocks = math.ceil((prefill + decode + self.spare + 1) / BLOCK_TOKENS) + 1
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.num_kv_blocks = max(sequences) * blocks + 8
        scheduler.max_num_batched_tokens = STEP_TOKENS
        scheduler.max_num_seqs = max(sequences)
        scheduler.enable_prefix_caching = False
        self.pipe = openvino_genai.ContinuousBatchingPipeline(
            model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads}
        )

    def request(self, answer):
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = answer
        config.ignore_eos, config.do_sample = True, False
        seed, self.requests = self.requests, self.requests + 1
        # Any tokens will do, so long as they are not all the same.
        prompt = (numpy.arange(self.prompt_tokens, dtype=numpy.int64) * 37 + seed * 11) % 200 + 33
        return self.pipe.add_request(seed, openvino.Tensor(prompt.reshape(1, -1)), config)

    def step(self):
        began = time.perf_counter()
        self.pipe.step()
        return time.perf_counter() - began

    def prefill(self):
        """Seconds that a prompt takes up to its first token."""
        handle = self.request(1)  # a request ends when nobody holds it
        seconds = 0.0
        while self.pipe.has_non_finished_requests():
            seconds += self.step()
        if not handle.can_read():
            raise SystemExit("The prompt got no answer")
        return seconds

    def decode(self, sequences):
        """Seconds of as many steps as there are tokens to decode, in which each sequence gets one."""
        handles = [self.request(self.answer_tokens + self.spare) for _ in range(sequences)]
        begun, seconds = set(), []
        while len(seconds) < self.answer_tokens and self.pipe.has_non_finished_requests():
            full = len(begun) == sequences
            took = self.step()
            got = [i for i, handle in enumerate(handles) if handle.can_read() and handle.read()]
            if full and len(got) == sequences:
                seconds.append(took)
            begun.update(got)
        if len(seconds) < self.answer_tokens:
            raise SystemExit(f"Only {len(seconds)} steps gave each of {sequences} sequences a token")
        for handle in handles:
            handle.cancel()
        while self.pipe.has_non_finished_requests():
            self.pipe.step()
        return sum(seconds)


def main():
    settings = json.loads(sys.argv[1])
    sequences, prefill, decode = settings["sequences"], settings["prefill"], settings["decode"]
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "model.gguf")
        with_keys(settings["model"], copy)
        began = time.perf_counter()
        peer = Peer(copy, prefill, decode, sequences, settings["threads"])
        load_ms = 1000 * (time.perf_counter() - began)
    peer.prefill()  # warms up
    seconds = numpy.median([peer.prefill() for _ in range(SAMPLES)])
    rows = [{"work": "prefill", "sequences": 1, "tokens_per_second": prefill / seconds}]
    for count in sequences:
        seconds = numpy.median([peer.decode(count) for _ in range(SAMPLES)])
        rows.append({"work": "decode", "sequences": count, "tokens_per_second": count * decode / seconds})
    core = openvino.Core()
    isa = ", ".join(sorted(core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")))
    precision = core.get_property("CPU", "INFERENCE_PRECISION_HINT").get_type_name()
    isa = f"{isa}; activations in {precision}"
    print(json.dumps({"rows": rows, "isa": isa, "rss_mb": resident_mb(), "load_ms": load_ms}))


main()
