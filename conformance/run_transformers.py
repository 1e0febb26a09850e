"""Tiny random models of Hugging Face with attn_implementation="qkv" against "eager"; called by
conformance/transformers."""

import copy
import sys
import traceback

import torch
import transformers
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM

import qkv.transformers

SMALL = dict(vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=3,
             num_attention_heads=4, max_position_embeddings=64, bos_token_id=1, eos_token_id=2,
             pad_token_id=0)
GROUPED = dict(SMALL, num_key_value_heads=2)

# What the differences may be in float32: logits of three layers.
MOST = 1e-5


def configurations():
    t = transformers
    yield "Llama", AutoModelForCausalLM, t.LlamaConfig(**GROUPED)
    yield "GPT-2", AutoModelForCausalLM, t.GPT2Config(
        vocab_size=97, n_embd=32, n_layer=3, n_head=4, n_positions=64, bos_token_id=1,
        eos_token_id=2, pad_token_id=0)
    yield "BERT", AutoModel, t.BertConfig(**SMALL)
    yield "Mistral, window of 5", AutoModelForCausalLM, t.MistralConfig(**GROUPED, sliding_window=5)
    yield "Gemma 2, softcap, window of 5", AutoModelForCausalLM, t.Gemma2Config(
        **GROUPED, head_dim=8, sliding_window=5, attn_logit_softcapping=0.7,
        query_pre_attn_scalar=11)
    yield "GPT-OSS, sinks, window of 5", AutoModelForCausalLM, t.GptOssConfig(
        **GROUPED, head_dim=8, sliding_window=5, num_local_experts=2, num_experts_per_tok=1,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0))
    yield "T5, position biases", AutoModelForSeq2SeqLM, t.T5Config(
        vocab_size=97, d_model=32, d_kv=8, d_ff=48, num_layers=3, num_heads=4, pad_token_id=0,
        eos_token_id=2, decoder_start_token_id=0)


def pair(auto, config):
    """The same weights twice, with larger ones than a fresh model has: attention then matters."""
    models = []
    for implementation in ("eager", "qkv"):
        torch.manual_seed(11)
        # A configuration of its own: models that share one also share what is set in it.
        own = copy.deepcopy(config)
        model = auto.from_config(own, attn_implementation=implementation).float().eval()
        torch.manual_seed(12)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.dim() > 1 or "sinks" in name:
                    weight.normal_(0.0, 0.25)
        models.append(model)
    kinds = [model.config._attn_implementation for model in models]
    assert kinds == ["eager", "qkv"], kinds
    return models


def tokens(batch=2, length=13):
    torch.manual_seed(13)
    return torch.randint(3, 97, (batch, length))


def outputs(model, ids, mask, **more):
    if model.config.is_encoder_decoder:
        more["decoder_input_ids"] = ids.flip(1)
    found = model(input_ids=ids, attention_mask=mask, **more)
    return found, found.logits if "logits" in found else found.last_hidden_state


def difference(models, mask, **more):
    ids = tokens()
    with torch.no_grad():
        right, found = (outputs(model, ids, mask, **more)[1] for model in models)
    valid = mask.bool()
    if models[0].config.is_encoder_decoder:
        valid = torch.ones_like(valid)
    return (right - found)[valid].abs().max().item()


def left_padded():
    mask = torch.ones(2, 13, dtype=torch.long)
    mask[0, :5] = 0
    return mask


def right_padded():
    return left_padded().flip(1)


def whole():
    return torch.ones(2, 13, dtype=torch.long)


def check_logits(models, mask):
    most = difference(models, mask)
    assert most <= MOST, f"largest difference {most:.2e}"
    return most


def check_masks_matter(models, mask):
    """A mask that is dropped must show: without it the numbers are others."""
    ids = tokens()
    with torch.no_grad():
        masked, plain = (outputs(models[1], ids, m)[1] for m in (mask, whole()))
    most = (masked - plain)[mask.bool()].abs().max().item()
    assert most > 1e-3, f"only {most:.2e} between a padded and an unpadded run"


def check_generation(models, mask, **more):
    ids = tokens()
    if mask is not None:
        ids = ids * mask
    right, found = (
        m.generate(ids, attention_mask=mask, max_new_tokens=12, do_sample=False, **more)
        for m in models
    )
    assert torch.equal(right, found), f"{right.tolist()} and {found.tolist()}"


def check_gradients(models, mask):
    ids = tokens()
    gradients = []
    for model in models:
        model.zero_grad()
        outputs(model, ids, mask)[1][mask.bool()].square().mean().backward()
        gradients.append({n: w.grad.clone() for n, w in model.named_parameters() if w.grad is not None})
    right, found = gradients
    assert right.keys() == found.keys(), set(right) ^ set(found)
    # Relative to the largest of a weight's gradients.
    worst = max((right[n] - found[n]).abs().max() / right[n].abs().max().clamp(min=1.0) for n in right)
    assert worst <= 1e-5, f"largest difference {worst:.2e}"


def check_weights(models, mask):
    ids = tokens()
    with torch.no_grad():
        right, found = (outputs(m, ids, mask, output_attentions=True)[0] for m in models)
        with qkv.transformers.record() as trace:
            outputs(models[1], ids, mask)
    name = "encoder_attentions" if models[0].config.is_encoder_decoder else "attentions"
    valid = mask.bool()
    for layer, (a, b) in enumerate(zip(right[name], found[name], strict=True)):
        rows = (a - b).transpose(1, 2)[valid]
        assert rows.abs().max() <= MOST, f"layer {layer}: {rows.abs().max():.2e}"
        if name == "attentions":
            recorded = trace[layer][0].weights
            assert torch.equal(recorded, b), f"layer {layer}: recorded weights are others"
            assert "softmax" in trace[layer][0].explain(head=1, batch=1, rows=0).text()
            shown = torch.tensor(trace.map().weights(layer, 1, entry=1))
            assert torch.equal(shown, b[1, 1]), f"layer {layer}: the map has other weights"


def check_refuses_unknown_tensors():
    module = torch.nn.Module()
    q = torch.zeros(1, 1, 2, 4)
    try:
        qkv.transformers._forward(module, q, q, q, None, surprise=q)
    except TypeError as error:
        assert "surprise" in str(error)
    else:
        raise AssertionError("an unknown tensor was swallowed")


def main():
    qkv.transformers.register()
    transformers.logging.set_verbosity_error()
    counts = {"passed": 0, "failed": 0}

    def case(name, check, *arguments, **keywords):
        try:
            found = check(*arguments, **keywords)
            counts["passed"] += 1
            return found
        except Exception as error:
            counts["failed"] += 1
            print(f"failed: {name}: {error or traceback.format_exc()}")
            if not isinstance(error, AssertionError):
                traceback.print_exc()

    case("unknown tensors are refused", check_refuses_unknown_tensors)
    for name, auto, config in configurations():
        models = case(f"{name}: set up", pair, auto, config)
        if models is None:
            continue
        worst = [
            case(f"{name}: {kind}", check_logits, models, mask)
            for kind, mask in [
                ("no padding", whole()),
                ("left padding", left_padded()),
                ("right padding", right_padded()),
            ]
        ]
        case(f"{name}: masks matter", check_masks_matter, models, left_padded())
        case(f"{name}: weights", check_weights, models, left_padded())
        case(f"{name}: gradients", check_gradients, models, right_padded())
        if auto is not AutoModel:
            case(f"{name}: generation", check_generation, models, whole())
            case(f"{name}: generation, left padding", check_generation, models, left_padded())
        if auto is AutoModelForCausalLM:
            case(f"{name}: generation, static cache", check_generation, models, left_padded(),
                 cache_implementation="static", disable_compile=True)
        print(f"{name}: largest difference {max((x for x in worst if x is not None), default=float('nan')):.1e}")
    print(f"transformers {transformers.__version__}: {counts['passed']} passed, "
          f"{counts['failed']} failed, 0 skipped")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
