# The two precisions every row kernel is compiled for.
ctypedef fused real:
    float
    double
