/* Stands in for NVIDIA's library: two GPUs with three links each, one of them
 * down and one of each to a switch. NVML_HANGS makes it hang at the start. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_FOUND = 6 };
enum { GPUS = 2, LINKS = 3 };

struct pci {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char text[32];
};

static unsigned handles[GPUS];

static unsigned number(const void *handle) { return (unsigned)((const unsigned *)handle - handles); }

static void fill(struct pci *pci, unsigned bus) {
  memset(pci, 0, sizeof *pci);
  pci->bus = bus;
  snprintf(pci->text, sizeof pci->text, "00000000:%02X:00.0", bus);
}

int nvmlInit_v2(void) {
  if (getenv("NVML_HANGS"))
    for (;;)
      pause();
  return SUCCESS;
}

int nvmlShutdown(void) { return SUCCESS; }

int nvmlSystemGetDriverVersion(char *text, unsigned length) {
  snprintf(text, length, "580.0");
  return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = GPUS;
  return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  if (index >= GPUS)
    return NOT_FOUND;
  *handle = &handles[index];
  return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(void *handle, struct pci *pci) {
  fill(pci, 0x10 + number(handle));
  return SUCCESS;
}

int nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *up) {
  (void)handle;
  if (link >= LINKS)
    return INVALID_ARGUMENT;
  *up = link != 1;
  return SUCCESS;
}

int nvmlDeviceGetNvLinkVersion(void *handle, unsigned link, unsigned *version) {
  (void)handle;
  (void)link;
  *version = 5;
  return SUCCESS;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned link, struct pci *pci) {
  fill(pci, link == 0 ? 0x11 - number(handle) : 0x20);
  return SUCCESS;
}
