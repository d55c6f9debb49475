// SPDX-License-Identifier: Apache-2.0
#include "sim/options.hpp"

namespace orbite::sim {
namespace {

constexpr std::array<std::string_view, kFaults> kNames = {
    "delay",        "short",      "clog",  "cut",        "cut-one-way", "reset",      "give-up",
    "accept-fails", "no-connect", "pause", "clock-jump", "kill",        "power-loss", "port-taken"};

constexpr FaultSet kProcessFaults = bit(Fault::kPause) | bit(Fault::kClockJump) |
                                    bit(Fault::kKill) | bit(Fault::kPowerLoss) |
                                    bit(Fault::kPortTaken);

constexpr std::array<Profile, 4> kProfiles = {
    Profile{"none", 0, "a quiet world"},
    Profile{"network", kAllFaults & ~kProcessFaults, "links and connections fail, hosts live on"},
    Profile{"process", kProcessFaults, "hosts stop, die and restart, the network is quiet"},
    Profile{"all", kAllFaults, "everything"}};

}  // namespace

std::string_view fault_name(Fault fault) noexcept {
  return kNames[static_cast<std::size_t>(fault)];
}

const std::array<Profile, 4>& profiles() noexcept { return kProfiles; }

std::optional<FaultSet> profile_faults(std::string_view name) noexcept {
  for (const Profile& profile : kProfiles) {
    if (profile.name == name) {
      return profile.faults;
    }
  }
  return std::nullopt;
}

std::string fault_names(FaultSet faults) {
  std::string names;
  for (std::size_t i = 0; i < kFaults; ++i) {
    if ((faults & (FaultSet{1} << i)) != 0) {
      names += names.empty() ? "" : ", ";
      names += kNames[i];
    }
  }
  return names.empty() ? "none" : names;
}

}  // namespace orbite::sim
