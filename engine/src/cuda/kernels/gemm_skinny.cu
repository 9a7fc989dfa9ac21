// The skinny GEMM for every layer: named after what its activations are, and the rows that it takes at once.

#define SKINNY(name, K, EPILOGUE, ROWS)                                                                              \
    extern "C" __global__ void __launch_bounds__(SKINNY_THREADS, (Skinny<ROWS, K, EPILOGUE>::BLOCKS))                                                      \
    name##_##ROWS(const bf16* weights, const bf16* x, void* y, int outputs, int rows) {                               \
        launch_dependents();                                                                                          \
        typedef Skinny<ROWS, K, EPILOGUE> Gemm;                                                                       \
        Gemm gemm;                                                                                                    \
        gemm.weights = weights;                                                                                       \
        gemm.outputs = outputs;                                                                                       \
        gemm.run([&](int pass, bf16* to, int staged) { Gemm::copy(x, pass, to, staged); }, y, rows);                  \
    }

#define SKINNY_BOTH(name, K, EPILOGUE) SKINNY(name, K, EPILOGUE, 8) SKINNY(name, K, EPILOGUE, 16)

SKINNY_BOTH(skinny_hidden, HIDDEN, STORE)
SKINNY_BOTH(skinny_attention, ATTENTION, STORE)
SKINNY_BOTH(skinny_ffn, FFN, STORE)
SKINNY_BOTH(skinny_joined, 2 * HIDDEN, STORE)
SKINNY_BOTH(skinny_gated, HIDDEN, STORE_GATED)
SKINNY_BOTH(skinny_logits, HIDDEN, STORE_F32)
