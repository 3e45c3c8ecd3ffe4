#include "../sharded_trainer.hpp"

namespace train_gpt {

template TrainerType<float> trainer_type<flatshard::precision::Full<float>>(Strategy);

}  // namespace train_gpt
