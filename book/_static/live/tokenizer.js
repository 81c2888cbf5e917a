// Text to ids and back, from the tokenizer files of the package.

// What byte-level BPE never merges across: contractions, words, numbers, other signs, spaces.
const PIECES = new RegExp(
  [
    "'s|'t|'re|'ve|'m|'ll|'d",
    " ?\\p{L}+| ?\\p{N}+| ?[^\\p{White_Space}\\p{L}\\p{N}]+",
    "\\p{White_Space}+(?!\\P{White_Space})|\\p{White_Space}+",
  ].join("|"),
  "gu",
);
const SPECIALS = 3; // <pad>, <bos>, <eos>

// The visible character that stands for each of the 256 bytes in a vocabulary file.
function byteAlphabet() {
  const visible = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  let others = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(visible(byte) ? byte : others++));
}

export class BPETokenizer {
  pad = 0;
  bos = 1;
  eos = 2;

  constructor({ model, normalizer, pre_tokenizer }) {
    if (normalizer || pre_tokenizer?.type !== "ByteLevel") throw new Error("this is a tokenizer of another kind");
    this.alphabet = byteAlphabet();
    this.bytes = new Map(this.alphabet.map((character, byte) => [character, byte]));
    this.ids = new Map(Object.entries(model.vocab));
    this.tokens = [];
    for (const [token, id] of this.ids) this.tokens[id] = token;
    this.ranks = new Map(model.merges.map(([left, right], rank) => [`${left} ${right}`, rank]));
    this.encoder = new TextEncoder();
    this.decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  }

  // The merges of one piece: again and again the pair that was learned first, the leftmost of them.
  merge(piece) {
    const parts = Array.from(this.encoder.encode(piece), (byte) => this.alphabet[byte]);
    for (;;) {
      let best = Infinity;
      let place = -1;
      for (let i = 0; i + 1 < parts.length; i++) {
        const rank = this.ranks.get(`${parts[i]} ${parts[i + 1]}`) ?? Infinity;
        if (rank < best) [best, place] = [rank, i];
      }
      if (place < 0) return parts;
      parts.splice(place, 2, parts[place] + parts[place + 1]);
    }
  }

  encode(text) {
    if (/\p{Surrogate}/u.test(text)) throw new Error("the text is not valid Unicode: half a character stands in it");
    return (text.match(PIECES) ?? []).flatMap((piece) => this.merge(piece)).map((token) => this.ids.get(token));
  }

  decode(ids) {
    const characters = ids.filter((id) => id >= SPECIALS).flatMap((id) => [...this.tokens[id]]);
    return this.decoder.decode(Uint8Array.from(characters, (character) => this.bytes.get(character)));
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
      if (id === undefined) throw new Error(`The model has never seen the character “${character}”; leave it out.`);
      return id;
    });
  }

  decode(ids) {
    return ids.map((id) => this.characters[id]).join("");
  }
}

export const readTokenizer = (described) =>
  "characters" in described ? new CharTokenizer(described) : new BPETokenizer(described);
