#include "../sharded_trainer.hpp"

namespace train_gpt {

template TrainerType<flatshard::Half> trainer_type<flatshard::precision::Full<flatshard::Half>>(
    Strategy);

}  // namespace train_gpt
