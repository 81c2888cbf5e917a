"The old name of `transformer_lit.course.text_files`."

from transformer_lit.course.renamed import renamed

__getattr__ = renamed(
    __name__,
    "transformer_lit.course.text_files",
    own_hashes="hash_files",
    own_text="text_from_files",
    own_pairs="pairs_from_files",
)
