#include <algorithm>
#include <cstring>

#include "client/cpp/c_api/attendant_client_c.h"

namespace {

template <typename T>
T Field(const attendant_array& array, int32_t offset) {
  T field;
  std::memcpy(&field, static_cast<const char*>(array.object) + offset,
              sizeof field);
  return field;
}

bool Fits(const attendant_array_layout& layout, const attendant_array& array) {
  if (Field<const void*>(array, layout.type) != array.type ||
      Field<const void*>(array, layout.dtype) != array.dtype ||
      Field<int32_t>(array, layout.rank) != array.rank ||
      (Field<int32_t>(array, layout.flags) & array.flags) != array.flags) {
    return false;
  }
  const auto* shape = Field<const int64_t*>(array, layout.shape);
  return std::equal(array.shape, array.shape + array.rank, shape);
}

}  // namespace

extern "C" int32_t attendant_place_arrays(const attendant_array_layout* layout,
                                          const attendant_array* arrays,
                                          int32_t num_arrays) {
  for (int32_t a = 0; a < num_arrays; ++a) {
    if (!Fits(*layout, arrays[a])) return 0;
    *arrays[a].place = Field<void*>(arrays[a], layout->data);
  }
  return 1;
}
