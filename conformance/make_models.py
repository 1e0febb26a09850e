"""Small random models of every family that qkv-models reads, with what transformers computes of them
(eager attention, float32): crates/qkv-models/tests/data. Called by conformance/make-models."""

import copy
import json
import pathlib
import sys

import numpy
import torch
import transformers
from safetensors.numpy import save_file
from safetensors.torch import load_file
from safetensors.torch import save_file as save_tensors
from transformers import AutoModel, AutoModelForCausalLM

VOCABULARY = 290
SIZES = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=3,
             num_attention_heads=4, max_position_embeddings=64, bos_token_id=0, eos_token_id=0,
             pad_token_id=0, initializer_range=0.2)
GROUPED = dict(SIZES, num_key_value_heads=2, tie_word_embeddings=True)
LENGTHS = (21, 13)


def rope(kind, **more):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=10000.0, **more))


def configurations():
    t = transformers
    yield "bert", AutoModel, t.BertConfig(**SIZES), "f32"
    yield "roberta", AutoModel, t.RobertaConfig(**dict(SIZES, pad_token_id=1)), "bf16"
    yield "distilbert", AutoModel, t.DistilBertConfig(
        vocab_size=VOCABULARY, dim=32, hidden_dim=48, n_layers=3, n_heads=4,
        max_position_embeddings=64, pad_token_id=0, initializer_range=0.2), "f16"
    yield "modernbert", AutoModel, t.ModernBertConfig(
        **SIZES, local_attention=6, global_attn_every_n_layers=2, cls_token_id=0,
        sep_token_id=0), "bf16"
    gpt2 = dict(vocab_size=VOCABULARY, n_embd=32, n_layer=3, n_head=4, n_positions=64,
                bos_token_id=0, eos_token_id=0, initializer_range=0.2)
    yield "gpt2", AutoModelForCausalLM, t.GPT2Config(**gpt2), "f16"
    yield "gpt2-by-layer", AutoModelForCausalLM, t.GPT2Config(
        **gpt2, n_inner=40, scale_attn_by_inverse_layer_idx=True, activation_function="relu"), "bf16"
    yield "llama", AutoModelForCausalLM, t.LlamaConfig(
        **dict(GROUPED, tie_word_embeddings=False), attention_bias=True, mlp_bias=True), "f32"
    yield "llama-linear", AutoModelForCausalLM, t.LlamaConfig(
        **GROUPED, **rope("linear", factor=3.0)), "bf16"
    yield "llama-dynamic", AutoModelForCausalLM, t.LlamaConfig(
        **dict(GROUPED, max_position_embeddings=8), **rope("dynamic", factor=2.0)), "bf16"
    yield "llama-llama3", AutoModelForCausalLM, t.LlamaConfig(
        **GROUPED, **rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                          original_max_position_embeddings=16)), "bf16"
    yield "llama-yarn", AutoModelForCausalLM, t.LlamaConfig(
        **dict(GROUPED, head_dim=16),
        **rope("yarn", factor=4.0, original_max_position_embeddings=16)), "bf16"
    yield "mistral", AutoModelForCausalLM, t.MistralConfig(**GROUPED, head_dim=8, sliding_window=5), "bf16"
    yield "qwen2", AutoModelForCausalLM, t.Qwen2Config(**GROUPED), "bf16"
    yield "qwen2-window", AutoModelForCausalLM, t.Qwen2Config(
        **GROUPED, use_sliding_window=True, sliding_window=4, max_window_layers=1), "bf16"
    yield "qwen3", AutoModelForCausalLM, t.Qwen3Config(**GROUPED, head_dim=16), "bf16"
    yield "gemma2", AutoModelForCausalLM, t.Gemma2Config(
        **GROUPED, head_dim=16, sliding_window=5, attn_logit_softcapping=3.0,
        final_logit_softcapping=5.0, query_pre_attn_scalar=11), "bf16"
    yield "gemma3", AutoModelForCausalLM, t.Gemma3TextConfig(
        **GROUPED, head_dim=16, sliding_window=5, query_pre_attn_scalar=16,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"]), "bf16"
    yield "vit", AutoModel, t.ViTConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        image_size=[8, 12], patch_size=4, num_channels=2, initializer_range=0.2), "f16"


# What older files say in place of rope_parameters.
OLD = {
    "llama-linear": dict(rope_theta=10000.0, rope_scaling=dict(type="linear", factor=3.0)),
    "llama-dynamic": dict(rope_theta=10000.0, rope_scaling=dict(rope_type="dynamic", factor=2.0)),
    "mistral": dict(rope_theta=10000.0, rope_scaling=None),
    "modernbert": dict(global_rope_theta=160000.0, local_rope_theta=10000.0, layer_types=None),
    "gemma3": dict(rope_theta=1000000.0, rope_local_base_freq=10000.0, rope_scaling=None),
    "gemma2": dict(rope_theta=10000.0, layer_types=None),
}


def main(folder):
    torch.manual_seed(7)
    dtypes = dict(f32=torch.float32, f16=torch.float16, bf16=torch.bfloat16)
    for name, kind, config, dtype in configurations():
        model = kind.from_config(config, attn_implementation="eager").eval()
        with torch.no_grad():
            # Biases and gains as initialised are zeros and ones, which hide what is done with them.
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    parameter.add_(0.3 * torch.randn_like(parameter))
                parameter.copy_(parameter.to(dtypes[dtype]).float())
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        # A copy, because the frequencies of rotary positions would be rounded too.
        copy.deepcopy(model).to(dtypes[dtype]).save_pretrained(place)
        for file in place.iterdir():
            if file.name not in ("config.json", "model.safetensors"):
                file.unlink()
        # Nothing but what the files need: the tied head is not stored twice, nor the unused ones.
        tensors = load_file(place / "model.safetensors")
        save_tensors({key: value for key, value in tensors.items() if "pooler" not in key},
                     place / "model.safetensors")
        settings = json.loads((place / "config.json").read_text())
        if name in OLD:
            del settings["rope_parameters"]
            settings.update(OLD[name])
            settings = {key: value for key, value in settings.items()
                        if key != "layer_types" or value is not None}
        (place / "config.json").write_text(json.dumps(settings, indent=1) + "\n")
        if name == "vit":
            numbers = look(model, config)
        else:
            numbers = compute(model, kind is AutoModelForCausalLM, config)
        save_file(numbers, place / "numbers.safetensors")
        print(name, sum(file.stat().st_size for file in place.iterdir()), "bytes")


def compute(model, causal, config):
    """Two texts in one batch: filled up on the left for decoders, on the right for encoders."""
    longest = max(LENGTHS)
    pad = config.pad_token_id or 0
    ids = torch.full((len(LENGTHS), longest), pad)
    kept = torch.zeros_like(ids)
    for row, length in enumerate(LENGTHS):
        places = slice(longest - length, None) if causal else slice(None, length)
        ids[row, places] = torch.randint(2, VOCABULARY, (length,))
        kept[row, places] = 1
    more = {}
    if causal:
        more["position_ids"] = (kept.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        result = model(input_ids=ids, attention_mask=kept, output_attentions=True,
                       output_hidden_states=True, **more)
    numbers = dict(ids=ids.to(torch.int32), kept=kept.to(torch.int32),
                   attentions=torch.stack(result.attentions),
                   hidden_states=torch.stack(result.hidden_states))
    if causal:
        numbers["logits"] = result.logits[:, -1]
    return {key: numpy.ascontiguousarray(value.numpy()) for key, value in numbers.items()}


def look(model, config):
    """A picture."""
    pixels = torch.randn(1, config.num_channels, *config.image_size)
    with torch.no_grad():
        result = model(pixels, output_attentions=True, output_hidden_states=True)
    # After the last norm, as of the models of texts.
    states = [*result.hidden_states[:-1], result.last_hidden_state]
    numbers = dict(pixel_values=pixels, attentions=torch.stack(result.attentions),
                   hidden_states=torch.stack(states))
    return {key: numpy.ascontiguousarray(value.numpy()) for key, value in numbers.items()}


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
