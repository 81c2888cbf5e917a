// From text to ids and back, with the tokenizer files of the package.

// The places where Python's splitlines cuts, so that the tokens of a line don't depend on other lines.
const LINE_ENDS = /(?<=\r\n|[\n\v\f\x1c-\x1e\x85\u2028\u2029]|\r(?!\n))/u;

// The pieces across which byte-level BPE never merges: contractions, words, numbers, other characters, spaces.
const PIECES = new RegExp(
  [
    "'s|'t|'re|'ve|'m|'ll|'d",
    " ?\\p{L}+| ?\\p{N}+| ?[^\\p{White_Space}\\p{L}\\p{N}]+",
    "\\p{White_Space}+(?!\\P{White_Space})|\\p{White_Space}+",
  ].join("|"),
  "gu",
);
const SPECIALS = 3; // <pad>, <bos>, <eos>
export const HALF = "◌"; // shown for a character that isn't complete yet

// The visible character that represents each of the 256 bytes in a vocabulary file.
function byteAlphabet() {
  const visible = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  let others = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(visible(byte) ? byte : others++));
}

// The text of some bytes. Bytes that don't form a whole character are written like \xe4.
function readableBytes(bytes) {
  const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let text = "";
  for (let at = 0; at < bytes.length; ) {
    const size = bytes[at] < 0x80 ? 1 : bytes[at] < 0xe0 ? 2 : bytes[at] < 0xf0 ? 3 : 4;
    try {
      text += strict.decode(bytes.subarray(at, at + size));
      at += size;
    } catch {
      text += `\\x${bytes[at].toString(16).padStart(2, "0")}`;
      at += 1;
    }
  }
  return text;
}

// `parts` with every occurrence of a pair merged into one piece, from left to right.
function joined(parts, [left, right]) {
  const out = [];
  for (let i = 0; i < parts.length; i++) {
    const here = parts[i] === left && parts[i + 1] === right;
    out.push(here ? left + right : parts[i]);
    if (here) i += 1;
  }
  return out;
}

export class BPETokenizer {
  pad = 0;
  bos = 1;
  eos = 2;

  constructor({ model, normalizer, pre_tokenizer }) {
    if (normalizer || pre_tokenizer?.type !== "ByteLevel") throw new Error("this page can only read byte-level BPE tokenizers without a normalizer");
    this.alphabet = byteAlphabet();
    this.bytes = new Map(this.alphabet.map((character, byte) => [character, byte]));
    this.ids = new Map(Object.entries(model.vocab));
    this.tokens = [];
    for (const [token, id] of this.ids) this.tokens[id] = token;
    this.ranks = new Map(model.merges.map(([left, right], rank) => [`${left} ${right}`, rank]));
    this.encoder = new TextEncoder();
    this.decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  }

  // Cut a text into words, each a list of its bytes.
  cut(text) {
    if (/\p{Surrogate}/u.test(text)) throw new Error("The text is not valid Unicode: it contains half a character. Delete that character.");
    const letters = (word) => Array.from(this.encoder.encode(word), (byte) => this.alphabet[byte]);
    return text.split(LINE_ENDS).flatMap((line) => line.match(PIECES) ?? []).map(letters);
  }

  // Of all neighbouring pairs in a word, the one that was learned first: its rank, and its leftmost position.
  first(parts) {
    let best = { rank: Infinity, place: -1 };
    for (let i = 0; i + 1 < parts.length; i++) {
      const rank = this.ranks.get(`${parts[i]} ${parts[i + 1]}`) ?? Infinity;
      if (rank < best.rank) best = { rank, place: i };
    }
    return best;
  }

  // Merge one word: again and again, the pair that was learned first, at its leftmost position.
  merge(parts) {
    for (;;) {
      const { place } = this.first(parts);
      if (place < 0) return parts;
      parts.splice(place, 2, parts[place] + parts[place + 1]);
    }
  }

  // The same for a whole text, one merge at a time: {rank, pair, words}. The first entry has the bytes and no rank.
  trace(text) {
    let words = this.cut(text);
    const steps = [{ rank: -1, pair: null, words }];
    for (;;) {
      const { rank, word, place } = words
        .map((parts, word) => ({ ...this.first(parts), word }))
        .reduce((a, b) => (b.rank < a.rank ? b : a), { rank: Infinity });
      if (rank === Infinity) return steps;
      const pair = words[word].slice(place, place + 2);
      words = words.map((parts) => joined(parts, pair));
      steps.push({ rank, pair, words });
    }
  }

  readable(token) {
    return readableBytes(Uint8Array.from(token, (character) => this.bytes.get(character)));
  }

  // A single token as it appears in a text.
  piece(id) {
    return this.readable(this.tokens[id]);
  }

  encode(text) {
    return this.cut(text).flatMap((parts) => this.merge(parts)).map((token) => this.ids.get(token));
  }

  spelled(ids) {
    const characters = ids.filter((id) => id >= SPECIALS).flatMap((id) => [...this.tokens[id]]);
    return Uint8Array.from(characters, (character) => this.bytes.get(character));
  }

  decode(ids) {
    return this.decoder.decode(this.spelled(ids));
  }

  // What the last of some tokens adds to their text. A character appears with its last byte; until then, HALF is shown.
  added(ids) {
    if (ids.at(-1) < SPECIALS) return this.piece(ids.at(-1));
    const [before, now] = [ids.slice(0, -1), ids].map((some) => {
      const text = this.decoder.decode(this.spelled(some), { stream: true });
      return { text, open: this.decoder.decode() !== "" };
    });
    return now.text.slice(before.text.length) + (now.open ? HALF : "");
  }
}

// One id for each character of a text.
export class CharTokenizer {
  constructor({ characters }) {
    this.characters = [...characters];
    this.ids = new Map(this.characters.map((character, id) => [character, id]));
  }

  encode(text) {
    return Array.from(text, (character) => {
      const id = this.ids.get(character);
      if (id === undefined) throw new Error(`The model has never seen the character “${character}”. Leave it out.`);
      return id;
    });
  }

  piece(id) {
    return this.characters[id];
  }

  added(ids) {
    return this.piece(ids.at(-1));
  }

  decode(ids) {
    return ids.map((id) => this.piece(id)).join("");
  }
}

export const readTokenizer = (described) =>
  "characters" in described ? new CharTokenizer(described) : new BPETokenizer(described);
