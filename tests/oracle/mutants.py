"""Plants faults in models/decoders.py, one by one: `python tests/oracle/mutants.py [MODEL …]`."""

import os
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

ROOT = Path(__file__).parents[2]
sys.path[:0] = map(str, (ROOT, ROOT / "tests", ROOT / "tests/oracle"))
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

import test_decoders as tests  # noqa: E402
import torch  # noqa: E402
from checkpoints import folder_with  # noqa: E402

from transformer_lit.course.files import InputError  # noqa: E402
from transformer_lit.models import decoders, hf_build  # noqa: E402

MUTANTS = [  # a model that it changes; a line, and what becomes of it
    ("llama 3", "    for layer in model.layers:\n        layer.attn.position = rope\n", ""),
    ("mistral", "layer.attn.attend = Window(size)", "layer.attn.attend = Window(size + 1)"),
    ("qwen2 windows", "if i < full else", "if i <= full else"),
    ("gemma 2", '_mistral(c, c.get("layer_types") or kinds)', "_mistral(c, kinds)"),
    ("qwen3", 'PerHead(RMSNorm(D, eps=c["rms_norm_eps"]), D)', "PerHead(RMSNorm(D), D)"),
    ("qwen3 moe", "n_experts, k, renormalise=renormalise)", "n_experts, k)"),
    ("qwen3-next other", " and (i + 1) % step == 0", ""),
    ("qwen3 moe", "if i not in dense and", "if"),
    ("gemma 2", "lambda w: 1 + w.double()", "lambda w: w.double()"),
    ("deepseek groups", ' if c.get("rope_interleave", True) else position', ""),
    ("deepseek yarn", "scale = m**2 *", "scale = m *"),
    ("deepseek", 'if i >= c["first_k_dense_replace"]', 'if i > c["first_k_dense_replace"]'),
    ("gemma 3", 'layer.attn.scale = c["query_pre_attn_scalar"] ** -0.5', "pass"),
    ("gemma 3", 'get_activation("gelu_tanh")', 'get_activation("gelu")'),
    ("gemma 3", 'RoundedScale(c["hidden_size"] ** 0.5)', "RoundedScale(1.0)"),
    ("gemma 2", "Capped(cap))", "nn.Identity())"),
    (
        "gemma 2",
        "replace(attn.attend, attend=SoftCap(cap)) if near else SoftCap(cap)",
        "SoftCap(cap)",
    ),
    ("gemma 3", 'rope if kind == "sliding_attention" else layer.attn.position', "rope"),
    ("gemma 3", 'c.get("sliding_window_pattern") or 6', "5"),
    ("gpt-oss clamped", 'c.get("swiglu_limit", 7.0)', "7.0"),
    ("gpt-oss clamped", 'c.get("swiglu_alpha", 1.702)', "1.702"),
    ("gpt-oss", "Window(seen.size, first=1)", "Window(seen.size)"),
    ("gpt-oss", "_every(2, c)", "_every(3, c)"),
    ("gpt-oss", "x[j][..., first::step].t()", "x[0][..., first::step].t()"),
    ("olmo 2", "norm(plain.out_features)", "PerHead(norm(14), 14)"),
    ("olmo 3", 'if kind == "sliding_attention":\n            layer.attn.position = rope', "pass"),
    ("deepseek", 'GatedFeedForward(C, c["n_shared_experts"] * d_ff)', "None"),
    ("qwen3-next", "self.gate(x).sigmoid() * self.ffn(x)", "self.ffn(x)"),
    ("qwen3-next", 'eps=c["rms_norm_eps"])\n    model =', "eps=1e-6)\n    model ="),
    ("qwen3-next", "[:: 1 if part < 4 else -1]", ""),
]


def unlike(model):
    "What the first property that `model` lacks says; None if it has all."
    checks = [(tests.test_logits_are_the_references, ())]
    if model in tests.UNSAID:
        unsaid = tests.UNSAID[model]
        checks.append((tests.test_what_a_folder_leaves_out_is_what_the_reference_takes, (unsaid,)))
    for check, more in checks:
        with TemporaryDirectory() as room:
            try:
                check(folder_with(tests.theirs, model, Path(room)), *more)
            except (AssertionError, InputError, RuntimeError) as error:
                return str(error).strip().split("\n")[-1]
    return None


def main(models):
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    warnings.simplefilter("ignore")
    whole, source = dict(hf_build.FAMILIES), Path(decoders.__file__).read_text()
    survivors = 0
    for model, old, new in MUTANTS:
        if models and model not in models:
            continue
        assert source.count(old) == 1, f"not one but {source.count(old)}: {old}"
        assert unlike(model) is None, f"{model} differs as it is"
        mutant = sys.modules["mutant"] = ModuleType("mutant")
        exec(source.replace(old, new), vars(mutant))
        hf_build.FAMILIES.update(mutant.DECODERS)
        said = unlike(model)
        hf_build.FAMILIES.update(whole)
        survivors += said is None
        print(
            "killed  " if said else "SURVIVES", f"{model}: {old.strip()[:50]!r}: {said}", flush=True
        )
    print(f"{survivors} survive")
    return bool(survivors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
