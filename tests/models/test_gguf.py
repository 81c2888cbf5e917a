"""A published file opens to the reference's tensors, ids and logits; a damaged one to one line."""

import random
import re
import struct
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
import transformers as hf
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import dequantize
from gguf_files import (
    MERGES,
    MODELS,
    SPECIALS,
    TOKENS,
    D,
    K,
    by_reference,
    put,
    theirs,
    write_model,
)
from tokenizers import pre_tokenizers

from transformer_lit.course.files import InputError
from transformer_lit.inference.sampling import LeftPadded, generate, pad_left
from transformer_lit.models.gguf import GGUF, KINDS, Reader, half_split_rows, load_gguf
from transformer_lit.models.hf import Made
from transformer_lit.models.quantise import Linear4, dequantise_q4_1, quantised

pytestmark = pytest.mark.usefixtures("single")
PROMPTS = Path(__file__).with_name("prompts.txt").read_text("utf-8").splitlines()
ALL = [kind.name for kind in KINDS.values()]


@pytest.fixture(scope="module")
def opened(smollm2):
    return load_gguf(smollm2, dtype=torch.float64)


@pytest.fixture(scope="module")
def reference(smollm2):
    torch.set_default_dtype(torch.float32)
    return by_reference(smollm2).double()


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "x.gguf"
    return write_model(path, "llama", theirs("llama"), "Q8_0")


def peak(anew=False):
    "The most memory of this process so far, or from now on, in bytes."
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("only Linux tells the peak of a process from now on")
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    told = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", told)[1])


def random_bytes(kind, rows, columns):
    "Bytes of any kind; what is a float16 in them is made finite."
    numbers, size = gguf.GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    raw = np.random.default_rng(0).integers(0, 256, (rows, columns // numbers, size), np.uint8)
    halves = {"Q4_K": (0, 2), "Q6_K": (208,), "Q4_0": (0,), "Q4_1": (0, 2), "Q8_0": (0,)}
    for at in {"F16": (0,), "BF16": (0,), "F32": (2,)}.get(kind, halves.get(kind, ())):
        raw[..., at + 1] &= 0xBF  # the upper bit of the exponent
    return raw.reshape(rows, -1)


MEMORY = """
import sys, torch
from transformer_lit.models.gguf import load_gguf

model = load_gguf(sys.argv[1], dtype=getattr(torch, sys.argv[2])).model
with open("/proc/self/status") as lines:
    peak = next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
print(peak, sum(p.nbytes for p in model.parameters()))
"""


class TestTensors:
    @pytest.mark.parametrize("kind", ALL)
    def test_any_bytes_of_a_kind_are_the_reference_s_numbers(self, tmp_path, kind):
        raw, its = random_bytes(kind, 7, 768), GGMLQuantizationType[kind]
        writer = GGUFWriter(tmp_path / "x.gguf", "llama")
        if kind in ("F32", "F16"):
            writer.add_tensor("x", raw.view({"F32": np.float32, "F16": np.float16}[kind]))
        else:
            writer.add_tensor("x", raw, raw_dtype=its)
        put(writer, "behind", np.ones((1, 32), np.float32), "F32")
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        file = GGUF(tmp_path / "x.gguf")
        (x, behind) = GGUFReader(tmp_path / "x.gguf").tensors
        expected = torch.from_numpy(dequantize(np.array(x.data), its)).view(7, 768)
        assert torch.equal(file.tensor("x"), expected)
        blocks = file.blocks(Made(("x",)))
        if kind in ("Q4_0", "Q4_1"):
            assert torch.equal(dequantise_q4_1(blocks), expected)
        else:
            assert blocks is None
        assert torch.equal(file.tensor("behind"), torch.ones(1, 32)) and behind.name == "behind"

    @pytest.mark.machinery
    def test_every_tensor_of_smollm2(self, smollm2):
        file = GGUF(smollm2)
        for tensor in GGUFReader(smollm2).tensors:
            expected = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type))
            assert torch.equal(file.tensor(tensor.name), expected), tensor.name

    def test_rows_that_took_turns_are_two_halves_again(self):
        w = torch.arange(2 * 6 * 3.0).view(12, 3)
        turns = w.view(2, 2, 3, 3).transpose(1, 2).reshape(12, 3)  # llama.cpp's own words
        assert torch.equal(half_split_rows(2, turns), w) and not torch.equal(turns, w)


class TestMetadata:
    def test_every_kind_of_value(self, tmp_path):
        told = {"a.i8": ("int8", -3), "a.u8": ("uint8", 250), "a.i16": ("int16", -300)}
        told |= {"a.u16": ("uint16", 60_000), "a.i32": ("int32", -70_000), "a.bool": ("bool", True)}
        told |= {"a.u32": ("uint32", 4_000_000_000), "a.f32": ("float32", 0.5)}
        told |= {
            "a.u64": ("uint64", 2**63),
            "a.i64": ("int64", -(2**40)),
            "a.f64": ("float64", 0.1),
        }
        told |= {"a.text": ("string", "Fahrräder 🚲"), "a.texts": ("array", ["a", "", "ä"])}
        told |= {"a.numbers": ("array", [1, -2, 3])}
        writer = GGUFWriter(tmp_path / "x.gguf", "llama")
        for name, (kind, value) in told.items():
            getattr(writer, f"add_{kind}")(name, value)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        found = GGUF(tmp_path / "x.gguf").metadata
        plain = {n: list(v) if isinstance(v, memoryview) else v for n, v in found.items()}
        assert plain == {"general.architecture": "llama"} | {n: v for n, (_, v) in told.items()}


class TestModels:
    @pytest.mark.parametrize("kind", MODELS)
    @pytest.mark.parametrize("tied", [False, True])
    def test_logits_are_those_of_the_reference(self, tmp_path, kind, tied):
        model = theirs(kind, tied, base=500.0)
        opened = load_gguf(write_model(tmp_path / "x.gguf", kind, model))
        ids = torch.randint(len(TOKENS), (3, 17))
        with torch.no_grad():
            expected = model(ids).logits
            torch.testing.assert_close(opened.model(ids), expected, rtol=1e-4, atol=1e-5)
        assert opened.chat_template == "{{ messages }}" and not opened.model.training

    @pytest.mark.parametrize("stored", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
    def test_stored_in_few_bits_it_is_the_model_of_those_numbers(self, tmp_path, stored):
        model = theirs("llama")
        path = write_model(tmp_path / "x.gguf", "llama", model, stored)
        read = {t.name: dequantize(t.data, t.tensor_type) for t in GGUFReader(path).tensors}
        state = load_gguf(path).model.state_dict()
        up = torch.from_numpy(read["blk.1.ffn_up.weight"])
        assert torch.equal(state["layers.1.ffn.up_proj.weight"], up)
        turned = half_split_rows(K, torch.from_numpy(read["blk.1.attn_k.weight"]))
        assert torch.equal(state["layers.1.attn.k_proj.weight"], turned)

    def test_llama_3_s_positions_stand_in_a_tensor(self, tmp_path):
        "Its factors, as llama.cpp's converter writes them, against the library's scaling by name."
        told = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0}
        told |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 32}
        model = theirs("llama", rope=told)
        plain = 500.0 ** -(torch.arange(0, D, 2) / D)
        factors = (plain / model.model.rotary_emb.inv_freq).numpy()
        assert factors.min() == 1 and factors.max() == 4
        path = write_model(
            tmp_path / "x.gguf", "llama", model, extra={"rope_freqs.weight": factors}
        )
        ids = torch.randint(len(TOKENS), (3, 67))
        with torch.no_grad():
            expected = model(ids).logits
            torch.testing.assert_close(load_gguf(path).model(ids), expected, rtol=1e-4, atol=2e-5)
        path = write_model(
            tmp_path / "y.gguf", "llama", model, extra={"rope_freqs.weight": factors[1:]}
        )
        with pytest.raises(InputError, match="rope_freqs"):
            load_gguf(path)

    def test_in_another_precision(self, tmp_path):
        path = write_model(tmp_path / "x.gguf", "llama", theirs("llama"))
        model = load_gguf(path, dtype=torch.bfloat16).model
        assert {x.dtype for x in model.parameters()} == {torch.bfloat16}

    @pytest.mark.parametrize("tied", [False, True])
    @pytest.mark.parametrize("weights", ["int8", "int4"])
    def test_weights_in_few_bits_are_those_of_the_whole_model(self, tmp_path, tied, weights):
        path = write_model(tmp_path / "x.gguf", "qwen2", theirs("qwen2", tied))  # with biases
        opened = load_gguf(path, weights=weights).model
        whole = quantised(load_gguf(path).model, weights)
        assert opened.state_dict().keys() == whole.state_dict().keys()
        for name, x in whole.state_dict().items():
            assert torch.equal(opened.state_dict()[name], x), name
        ids = torch.randint(len(TOKENS), (3, 17))
        assert torch.equal(opened(ids), whole(ids)) and not opened.training
        assert (opened.lm_head.q is getattr(opened.tok_emb, "q", None)) == tied
        with pytest.raises(ValueError, match="int3"):
            load_gguf(path, weights="int3")

    @pytest.mark.parametrize("stored", ["Q4_0", "Q4_1"])
    def test_blocks_of_four_bits_are_not_rounded_twice(self, tmp_path, stored):
        "Rows of queries and keys are exchanged; the two numbers of a block become bfloat16."
        path = write_model(tmp_path / "x.gguf", "llama", theirs("llama"), stored)
        four, whole = load_gguf(path, weights="int4").model, load_gguf(path).model
        layers = {name: m for name, m in four.named_modules() if isinstance(m, Linear4)}
        assert len(layers) == 2 * 7
        for name, layer in layers.items():
            w = whole.get_submodule(name).weight.unflatten(-1, (-1, 32))
            low, high = w.aminmax(dim=-1, keepdim=True)
            d = (high - low) / 15 if stored == "Q4_1" else w.abs().amax(-1, keepdim=True) / 8
            z = low + 8 * d if stored == "Q4_1" else 0 * d
            room = (d / 32 + z.abs() / 256) * (1 + 2**-10)
            assert ((layer.weight.view_as(w) - w).abs() <= room).all()

    @pytest.mark.machinery
    @pytest.mark.parametrize(
        ("weights", "most", "kept"), [("int8", 0.45, 0.255), ("int4", 0.4, 0.18)]
    )
    def test_smollm2_in_few_bits_takes_less_than_half_of_its_float32(
        self, smollm2, weights, most, kept
    ):
        before = peak(anew=True)
        model = load_gguf(smollm2, weights=weights).model
        grown = peak() - before
        numbers = sum(w.numel() for w in load_gguf(smollm2).model.parameters())
        assert grown <= most * 4 * numbers
        assert sum(w.numel() * w.element_size() for w in model.parameters()) < kept * 4 * numbers


class TestTokenizer:
    TEXTS = ("the 1212 things\n\n  that  äre", "it's <|im_start|>the<|im_end|>\n", "🚲 e\u0301", "")

    @pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "qwen2"])
    def test_the_text_comes_back(self, tmp_path, pre):
        path = write_model(tmp_path / "x.gguf", "llama", theirs("llama"), pre=pre)
        tokenizer = load_gguf(path).tokenizer
        for text in self.TEXTS:
            back = tokenizer.backend.decode(tokenizer.encode(text), skip_special_tokens=False)
            assert back == (text.replace("e\u0301", "é") if pre == "qwen2" else text)
        assert (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id) == (None, 1, 2)
        assert tokenizer.specials == tuple(SPECIALS)
        assert tokenizer.encode("<|im_start|>") == [1]

    def test_digits_stand_alone_where_the_model_was_trained_so(self, tmp_path):
        cut = {}
        for pre in ("gpt-2", "smollm", "qwen2", "llama-bpe"):
            path = write_model(tmp_path / f"{pre}.gguf", "llama", theirs("llama"), pre=pre)
            cut[pre] = load_gguf(path).tokenizer.tokens("1212")
        assert cut["smollm"] == cut["qwen2"] == ["1", "2", "1", "2"]
        assert cut["gpt-2"] == ["12", "12"] and cut["llama-bpe"] == ["12", "1", "2"]

    def test_qwen2_s_ids(self, tmp_path):
        path = write_model(tmp_path / "x.gguf", "qwen2", theirs("qwen2"), pre="qwen2")
        ours = load_gguf(path).tokenizer

        vocabulary = {token: i for i, token in enumerate(TOKENS)}
        pairs = [tuple(pair.split()) for pair in MERGES]
        reference = hf.Qwen2Tokenizer(vocabulary, pairs, unk_token=SPECIALS[0])
        for text in ("the 1212  things\n\n\tthat IT'S äre  \n x", "e\u0301 東京 12,3 !!\r\n\r\n"):
            assert ours.encode(text) == reference(text)["input_ids"]


@pytest.mark.machinery
class TestSmolLM2:
    def test_ids_are_those_of_the_reference(self, smollm2, opened):
        """The library opens the file and leaves out that digits stand alone: that is put back here,
        as the model's own `tokenizer.json` has it. Without digits nothing is to put back."""
        reference = hf.AutoTokenizer.from_pretrained(smollm2.parent, gguf_file=smollm2.name)
        draw = random.Random(0)
        letters = "abz EÖß東京🚲\u0301\n\t'.,;<|>im_endstart" + "the of and " * 3
        texts = ["".join(draw.choices(letters, k=40)) for _ in range(100)]
        texts += ["<|im_start|>user\nHi, it's me!<|im_end|>\n", "  a   b\n\n\n c", ""]
        numbers = ["".join(draw.choices(letters + "0123456789", k=40)) for _ in range(100)]
        numbers += ["<|im_start|>user\n 2026,  12\n<|im_end|>"]
        for text in texts:
            assert opened.tokenizer.encode(text) == reference(text)["input_ids"], text
        backend = reference.backend_tokenizer
        digits = pre_tokenizers.Digits(individual_digits=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, backend.pre_tokenizer])
        for text in texts + numbers:
            ids = opened.tokenizer.encode(text)
            assert ids == reference(text)["input_ids"], text
            assert opened.tokenizer.backend.decode(ids, skip_special_tokens=False) == text

    def test_64_prompts_have_the_reference_s_logits_and_its_greedy_tokens(self, opened, reference):
        """Logits of a prompt read whole, token by token, and in random pieces; then 64 tokens.

        The reference reads each prompt with our tokens behind it: where ours is its first choice
        every time, it would have written them. Where it is not, the two are a tie: both may move by
        the tolerance.
        """
        prompts = [opened.tokenizer.encode(line) for line in PROMPTS]
        batch, lengths = pad_left(prompts)
        pieces, draw = [], random.Random(0)
        while sum(pieces) < batch.shape[1]:
            pieces.append(draw.randint(1, batch.shape[1] - sum(pieces)))
        with torch.inference_mode():
            cut = [
                self.in_pieces(LeftPadded(opened.model, lengths), batch, sizes)
                for sizes in ([1] * batch.shape[1], pieces)
            ]
        settings = {"max_new_tokens": 64, "temperature": 0}
        rows = generate(LeftPadded(opened.model, lengths), batch, **settings)
        equal = 0
        for length in set(map(len, prompts)):  # those of one length go together
            its = [i for i, prompt in enumerate(prompts) if len(prompt) == length]
            ids, new = (torch.tensor([x[i] for i in its]) for x in (prompts, rows))
            with torch.inference_mode():
                logits = reference(torch.cat([ids, new], 1)).logits[:, :-1]
                whole = opened.model(ids)
            for ours in (whole, *(x[its, -length:] for x in cut)):
                assert (ours - logits[:, :length]).abs().max() < 1e-4
            after = logits[:, length - 1 :]
            short = after.amax(-1) - after.gather(-1, new[..., None])[..., 0]
            assert new.shape[1] == 64 and short.max() < 2 * 1e-4
            equal += (after.argmax(-1) == new).all(-1).sum()
        assert len(rows) == 64 and equal >= 62

    @staticmethod
    def in_pieces(model, ids, pieces):
        state = model.start(len(ids), ids.shape[1])
        return torch.cat([model.step(piece, state) for piece in ids.split(pieces, 1)], 1)

    @pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory from /proc")
    def test_opening_takes_little_more_than_the_weights(self, smollm2):
        "Twice the weights, twice the memory: libraries and tokenizer are in both and cancel."

        def peak_and_weights(dtype):
            command = [sys.executable, "-c", MEMORY, smollm2, dtype]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            return map(int, done.stdout.split())

        (high, wide), (low, narrow) = map(peak_and_weights, ("float64", "float32"))
        assert wide == 2 * narrow and 0.9 < (high - low) / (wide - narrow) < 1.1

    def test_rows_that_are_not_put_back_spoil_it(self, opened, reference, smollm2, monkeypatch):
        ids = torch.tensor([opened.tokenizer.encode(PROMPTS[0])])
        monkeypatch.setattr("transformer_lit.models.gguf.half_split_rows", lambda n, w: w)
        with torch.no_grad():
            spoilt = load_gguf(smollm2, dtype=torch.float64).model
            gap = (spoilt(ids) - reference(ids).logits).abs()[0]
        assert gap[1:].amax(-1).min() > 1  # and no shape complains
        assert gap[0].max() < 1e-4  # the first position is not turned


class TestRefused:
    @staticmethod
    def told(path):
        with pytest.raises(InputError) as caught:
            load_gguf(path)
        (line,) = str(caught.value).splitlines()
        assert str(path) in line
        return line

    @pytest.mark.parametrize(
        ("key", "value", "words"),
        [
            ("general.architecture", "mamba", "mamba"),
            ("llama.expert_count", 8, "llama.expert_count"),
            ("llama.rope.scaling.type", "yarn", "yarn"),
            ("llama.attention.head_count", None, "does not say llama.attention.head_count"),
            ("llama.attention.head_count", 5, "5 heads"),
            ("llama.attention.head_count", 0, "0 heads"),
            ("llama.attention.head_count", "four", "no int"),
            ("llama.attention.head_count_kv", 3, "not built"),
            ("llama.block_count", 3, "block_count"),
            ("llama.block_count", 2**31, "block_count"),
            ("llama.embedding_length", 2**31, "embedding_length"),
            ("llama.context_length", 0, "not built"),
            ("llama.rope.dimension_count", 8, "dimension_count"),
            ("llama.rope.freq_base", float("nan"), "base"),
            ("llama.attention.layer_norm_rms_epsilon", 0.0, "ε"),
            ("tokenizer.ggml.model", "bert", "'bert'"),
            ("tokenizer.ggml.model", "llama", "a space in front"),
            ("tokenizer.ggml.pre", "tekken", "tekken"),
            ("tokenizer.ggml.eos_token_id", 10**6, "1000000"),
            ("tokenizer.ggml.tokens", [*TOKENS[:-1], TOKENS[0]], "twice"),
            ("tokenizer.ggml.tokens", TOKENS[:-1], "without a kind"),
            ("tokenizer.ggml.merges", ["t h", "no such"], "merges"),
        ],
    )
    def test_what_is_said(self, tmp_path, key, value, words):
        more = {key: value}
        kind = more.pop("general.architecture", "llama")
        model = theirs("llama")
        if kind != "llama":
            path = write_model(tmp_path / "x.gguf", kind, model)
        else:
            path = write_model(tmp_path / "x.gguf", kind, model, **more)
        assert words in self.told(path)

    def test_a_cut_file_wherever_it_is_cut(self, tmp_path, good):
        whole, path = good.read_bytes(), tmp_path / "cut.gguf"
        for size in [0, 3, 4, 8, 24, *random.Random(0).sample(range(len(whole) - 1), 60)]:
            path.write_bytes(whole[:size])
            self.told(path)

    def test_no_file_and_another_file(self, tmp_path):
        self.told(tmp_path / "none.gguf")
        self.told(tmp_path)
        (tmp_path / "text").write_text("GGUF is a file format")
        assert "version" in self.told(tmp_path / "text")

    def test_two_hundred_damages_are_one_line_each_and_take_no_memory(self, tmp_path, good):
        """Bytes flipped, and numbers of 4 and 8 bytes made absurd, in the part before the tensors.

        A damaged letter of a token or digit of a size that nothing contradicts opens; all else is
        told. Either way the process hardly grows.
        """
        whole, path, draw = good.read_bytes(), tmp_path / "x.gguf", random.Random(0)
        head, told = GGUF(good).mapped["token_embd.weight"].start, 0
        load_gguf(good)
        before = peak(anew=True)
        for _ in range(200):
            at, form = draw.randrange(head), draw.choice("BIQ")
            size = struct.calcsize(f"<{form}")
            absurd = draw.choice([0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, draw.getrandbits(64)])
            harm = struct.pack(f"<{form}", absurd % 256**size)
            path.write_bytes((whole[:at] + harm + whole[at + size :])[: len(whole)])
            try:
                load_gguf(path)
            except InputError as error:
                assert "\n" not in str(error) and str(path) in str(error)
                told += 1
        assert peak() - before < 16e6
        assert told > 50

    def test_a_weight_that_is_not_finite(self, tmp_path, good):
        start, harm = GGUF(good).mapped["blk.1.ffn_down.weight"].start, bytearray(good.read_bytes())
        harm[start : start + 2] = struct.pack("<e", float("inf"))
        (tmp_path / "x.gguf").write_bytes(harm)
        assert "blk.1.ffn_down.weight" in self.told(tmp_path / "x.gguf")

    def test_tensors_that_share_their_bytes(self, tmp_path, good):
        "A thousand names for one tensor would be a thousand times its memory."
        whole = good.read_bytes()
        row = whole.index(b"blk.0.attn_k.weight") + len("blk.0.attn_k.weight") + 4 + 16 + 4
        harm = whole[:row] + struct.pack("<Q", 0) + whole[row + 8 :]
        (tmp_path / "x.gguf").write_bytes(harm)
        assert "puts 'blk.0.attn_k.weight' at 0" in self.told(tmp_path / "x.gguf")

    def test_nothing_is_read_beyond_the_end(self, tmp_path):
        (tmp_path / "x").write_bytes(bytes(11))
        reader = Reader(tmp_path / "x")
        assert len(reader.take(7)) == 7
        with pytest.raises(InputError, match="5 bytes are due, 4 are there"):
            reader.take(5)
