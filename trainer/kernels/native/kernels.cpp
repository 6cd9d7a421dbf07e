// Compiled once for each instruction set, with PROTEIN_ISA as its name: CMakeLists.txt. Everything here is static and
// plain, without the standard library's templates, so that the linker cannot replace a function of one set by that of
// another.
#include "kernels.hpp"

#include "advantages.hpp"
#include "attention.hpp"
#include "categorical.hpp"
#include "images.hpp"
#include "linear.hpp"
#include "mlp.hpp"
#include "recurrent.hpp"
#include "vector_math.hpp"

namespace PROTEIN_ISA {

static void elementwise(int function, const float *x, float *y, size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i)
        y[i] = function == 0 ? exp_(x[i]) : function == 1 ? log_(x[i]) : function == 2 ? sigmoid_(x[i]) : tanh_(x[i]);
}

}  // namespace PROTEIN_ISA

#define PROTEIN_TEXT(x) #x
#define PROTEIN_NAME(x) PROTEIN_TEXT(x)
#define PROTEIN_JOIN(a, b) a##b
#define PROTEIN_TABLE(isa) PROTEIN_JOIN(isa, _kernels)

namespace protein {

const Kernels PROTEIN_TABLE(PROTEIN_ISA) = {
    PROTEIN_NAME(PROTEIN_ISA),
    PROTEIN_ISA::advantages,
    PROTEIN_ISA::sample,
    PROTEIN_ISA::ppo_gradient,
    PROTEIN_ISA::channels_last,
    PROTEIN_ISA::padded,
    PROTEIN_ISA::packed_floats,
    PROTEIN_ISA::pack_matrix,
    PROTEIN_ISA::linear_scratch_floats,
    PROTEIN_ISA::linear_forward,
    PROTEIN_ISA::linear_backward,
    PROTEIN_ISA::lstm_packed_floats,
    PROTEIN_ISA::lstm_pack,
    PROTEIN_ISA::lstm_scratch_floats,
    PROTEIN_ISA::lstm_forward,
    PROTEIN_ISA::lstm_backward,
    PROTEIN_ISA::lstm_step_scratch_floats,
    PROTEIN_ISA::lstm_step,
    PROTEIN_ISA::mingru_forward,
    PROTEIN_ISA::mingru_backward,
    PROTEIN_ISA::mlp_scratch_floats,
    PROTEIN_ISA::mlp_pack,
    PROTEIN_ISA::mlp_forward,
    PROTEIN_ISA::mlp_backward,
    PROTEIN_ISA::attention_scratch_floats,
    PROTEIN_ISA::attention_forward,
    PROTEIN_ISA::attention_backward,
    PROTEIN_ISA::elementwise,
};

}  // namespace protein
