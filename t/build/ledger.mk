# The tests of the ledger's file: t/ledger/ledger_NAME.c with the file's own
# functions and SQLite.  Of nginx they have the headers, from NGX, a configured
# tree, and nothing else.  Called by build.sh with OUT, NGX, CFLAGS and
# ASAN_CFLAGS.
#
# What measures, or is about several processes, is as the module is; the others
# have AddressSanitizer.

AS_IT_IS = crash many power processes rows stock_crash stock_rate

PARTS = $(patsubst src/%.c,%,$(sort $(wildcard src/core/*.c)) \
        $(filter-out %_check.c,$(sort $(wildcard src/event/ngx_iap_file_*.c))) \
        src/event/ngx_iap_ledger_room.c)

FLAGS = -std=gnu11 -g -Wall -Wextra -Wno-unused-parameter -Werror -MMD \
        -Isrc/core -Isrc/event -It/unit -It/ledger \
        -I$(NGX)/src/core -I$(NGX)/src/event -I$(NGX)/src/event/modules \
        -I$(NGX)/src/event/quic \
        -I$(NGX)/src/os/unix -I$(NGX)/objs

TESTS = $(patsubst t/ledger/ledger_%.c,%,$(sort $(wildcard t/ledger/ledger_*.c)))

all: $(addprefix $(OUT)/ledger_,$(TESTS))

$(addprefix $(OUT)/ledger_,$(AS_IT_IS)): $(OUT)/ledger_%: \
		$(OUT)/plain/ledger_%.o $(addprefix $(OUT)/plain/,$(addsuffix .o,$(PARTS)))
	$(CC) $(CFLAGS) -o $@ $^ -lsqlite3 -lhiredis -lcrypto -lm

$(addprefix $(OUT)/ledger_,$(filter-out $(AS_IT_IS),$(TESTS))): $(OUT)/ledger_%: \
		$(OUT)/asan/ledger_%.o $(addprefix $(OUT)/asan/,$(addsuffix .o,$(PARTS)))
	$(CC) $(ASAN_CFLAGS) -o $@ $^ -lsqlite3 -lhiredis -lcrypto -lm

$(OUT)/plain/ledger_%.o: t/ledger/ledger_%.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(FLAGS) -c -o $@ $<

$(OUT)/asan/ledger_%.o: t/ledger/ledger_%.c
	@mkdir -p $(@D)
	$(CC) $(ASAN_CFLAGS) $(FLAGS) -c -o $@ $<

$(OUT)/plain/%.o: src/%.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(FLAGS) -c -o $@ $<

$(OUT)/asan/%.o: src/%.c
	@mkdir -p $(@D)
	$(CC) $(ASAN_CFLAGS) $(FLAGS) -c -o $@ $<

.PRECIOUS: $(OUT)/plain/%.o $(OUT)/asan/%.o
.PHONY: all

-include $(wildcard $(OUT)/plain/*.d $(OUT)/plain/*/*.d \
                    $(OUT)/asan/*.d $(OUT)/asan/*/*.d)
