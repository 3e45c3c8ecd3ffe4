// So are the parts of -ffast-math that change values.
// expect: flatshard cannot keep its bits under -ffast-math
// flags: -ffinite-math-only
#include <flatshard/config.hpp>
