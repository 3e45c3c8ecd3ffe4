// Bits are promised, so flags that change values are refused.
// expect: flatshard cannot keep its bits under -ffast-math
// flags: -ffast-math
#include <flatshard/config.hpp>
