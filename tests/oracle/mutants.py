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
    ("llama 3", "layer.attn.position, layer.attn.attend = positions[kind],", "layer.attn.attend ="),
    ("mistral", "Window(size, first, attend)", "Window(size + 1, first, attend)"),
    ("qwen2 windows", "if i < full else", "if i <= full else"),
    ("qwen3-next other", 'c.get("layer_types") or [', "["),
    (
        "qwen3",
        "attn.k_proj, PerHead(RMSNorm(D, eps=eps), D)",
        "attn.k_proj, PerHead(RMSNorm(D), D)",
    ),
    ("qwen3 moe", "n_experts, k, renormalise=renormalise)", "n_experts, k)"),
    ("qwen3-next other", " or (layer + 1) % step", ""),
    ("qwen3 moe", "if layer in dense or", "if"),
    ("gemma 2", "lambda w: 1 + w.double()", "lambda w: w.double()"),
    ("deepseek groups", ' if c.get("rope_interleave", True) else rope', ""),
    ("deepseek yarn", "scale = m**2 *", "scale = m *"),
    ("deepseek", 'if layer < c["first_k_dense_replace"]', 'if layer <= c["first_k_dense_replace"]'),
    ("gemma 3", '    attn.scale = c["query_pre_attn_scalar"] ** -0.5\n    return', "    return"),
    ("gemma 3", 'get_activation("gelu_tanh")', 'get_activation("gelu")'),
    ("gemma 3", 'RoundedScale(c["hidden_size"] ** 0.5)', "RoundedScale(1.0)"),
    ("gemma 2", "nn.Sequential(model.lm_head, Capped(cap))", "model.lm_head"),
    ("gemma 2", "attend_fused if cap is None else SoftCap(cap)", "attend_fused"),
    (
        "gemma 3",
        "kind, old in ((NEAR, near), (FULL, far))",
        "kind, old in ((FULL, near), (NEAR, far))",
    ),
    ("gemma 3", 'c.get("sliding_window_pattern") or 6', "5"),
    ("gpt-oss clamped", '"limit": c["swiglu_limit"]', '"limit": 7.0'),
    ("gpt-oss clamped", '"alpha": c["swiglu_alpha"]', '"alpha": 1.702'),
    ("gpt-oss", "_windowed(c, kind, first=1)", "_windowed(c, kind)"),
    ("gpt-oss", "Parts(_in_turn(NEAR, FULL), attention", "Parts(_in_turn(NEAR), attention"),
    ("gpt-oss", "x[j][..., first::step].t()", "x[0][..., first::step].t()"),
    ("olmo 2", "norm(attn.q_proj.out_features)", "PerHead(norm(14), 14)"),
    (
        "olmo 3",
        "replace(_OLMO_PARTS, kinds=_in_turn(NEAR, NEAR, NEAR, FULL)",
        "replace(_OLMO_PARTS",
    ),
    ("olmo 3", ", positions=_olmo_ropes", ""),
    ("deepseek", 'GatedFeedForward(C, c["n_shared_experts"] * d_ff)', "None"),
    ("qwen3-next", "self.gate(x).sigmoid() * self.ffn(x)", "self.ffn(x)"),
    ("qwen3-next", '"eps": c["rms_norm_eps"]}', '"eps": 1e-6}'),
    ("qwen3-next", "q, gate = (y", "gate, q = (y"),
    ("qwen3-next", "+ ba.chunk(2, -1)", "+ ba.chunk(2, -1)[::-1]"),
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
