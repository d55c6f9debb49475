// SPDX-License-Identifier: Apache-2.0
#include <ifaddrs.h>
#include <net/if.h>

#include <cstdio>
#include <memory>

#include "platform/native_address.hpp"
#include "platform/route_table.hpp"
#include "platform/system.hpp"

namespace orbite::platform {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

struct FreeAddresses {
  void operator()(ifaddrs* list) const noexcept { ::freeifaddrs(list); }
};

/// Empty when the table cannot be read: a kernel without that family has none.
std::string default_interface(const char* table, void (DefaultRoute::*add)(std::string_view)) {
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(table, "re"));
  DefaultRoute route;
  char line[512];
  while (file != nullptr && std::fgets(line, sizeof(line), file.get()) != nullptr) {
    (route.*add)(line);
  }
  return route.interface();
}

bool is_link_local(const SocketAddress& address) {
  const auto& bytes = address.bytes();
  return address.family() == 4 ? bytes[0] == 169 && bytes[1] == 254
                               : bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
}

void append_addresses(const ifaddrs* list, std::uint8_t family, std::string_view interface,
                      std::vector<SocketAddress>& found) {
  for (const ifaddrs* it = list; it != nullptr; it = it->ifa_next) {
    // A further IPv4 address of eth0 may be labelled eth0:1.
    const std::string_view name(it->ifa_name);
    const SocketAddress address = to_socket_address(it->ifa_addr);
    if (!interface.empty() && name.substr(0, name.find(':')) == interface &&
        (it->ifa_flags & IFF_UP) != 0 && address.family() == family && !address.is_any() &&
        !is_link_local(address)) {
      found.push_back(SocketAddress::from_bytes(family, address.bytes(), 0));
    }
  }
}

}  // namespace

std::vector<SocketAddress> default_route_addresses() {
  const std::string ipv4 = default_interface("/proc/net/route", &DefaultRoute::add_ipv4);
  const std::string ipv6 = default_interface("/proc/net/ipv6_route", &DefaultRoute::add_ipv6);
  std::vector<SocketAddress> found;
  ifaddrs* raw = nullptr;
  if ((ipv4.empty() && ipv6.empty()) || ::getifaddrs(&raw) != 0) {
    return found;
  }
  const std::unique_ptr<ifaddrs, FreeAddresses> list(raw);
  append_addresses(list.get(), 4, ipv4, found);
  append_addresses(list.get(), 6, ipv6, found);
  return found;
}

}  // namespace orbite::platform
