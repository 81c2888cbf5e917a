"The old name of `transformer_lit.exercises.my_transformer`."

from transformer_lit.course.renamed import renamed

__getattr__ = renamed(__name__, "transformer_lit.exercises.my_transformer")
