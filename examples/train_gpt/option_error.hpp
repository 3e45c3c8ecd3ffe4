#pragma once

#include <stdexcept>

namespace train_gpt {

/// Something that the user can put right; what() is one sentence. The program exits with code 2.
class OptionError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace train_gpt
