// Bytes of images become float32 with channels last: `images x channels x pixels` to `images x pixels x channels`.
#pragma once

#include "kernels.hpp"

namespace PROTEIN_ISA {

// `Channels`: how many there are, where the compiler is to know it (it vectorises the loop then); 0: read at run time.
template <size_t Channels>
static void image_channels_last(const std::byte *from, size_t channels, size_t pixels, float scale, float *to) {
    const size_t count = Channels ? Channels : channels;
#pragma omp simd
    for (size_t p = 0; p < pixels; ++p)
        for (size_t c = 0; c < count; ++c) to[p * count + c] = scale * static_cast<float>(from[c * pixels + p]);
}

static void channels_last(const protein::ImagesArguments a, size_t begin, size_t end) {
    const auto image = a.channels == 4   ? image_channels_last<4>
                       : a.channels == 3 ? image_channels_last<3>
                       : a.channels == 1 ? image_channels_last<1>
                                         : image_channels_last<0>;
    const size_t size = a.channels * a.pixels;
    for (size_t i = begin; i < end; ++i) image(a.bytes + i * size, a.channels, a.pixels, a.scale, a.numbers + i * size);
}

}  // namespace PROTEIN_ISA
