// What every precision's source includes, parsed once per build.
#include <flatshard/flatshard.hpp>

#include <fmt/format.h>
