#include "go_asm.h"
#include "textflag.h"

// The kernel jumps here where the linker was given -E _lazaret_entry. early
// may replace the process; else Go starts as if nothing had been.
//
// The frame: 0 and 8 are early's arguments, 16 keeps the stack pointer, 24 and 32
// are thread-local storage, from which early's wrapper loads a g that nobody uses,
// and the scratch comes after them.
TEXT _lazaret_entry(SB), NOSPLIT|NOFRAME, $0
	MOVQ SP, BX
	SUBQ $(const_scratchSize+64), SP
	ANDQ $~15, SP
	MOVQ BX, 0(SP)
	MOVQ BX, 16(SP)
	MOVQ $0, 24(SP)
	MOVL $0x1002, DI // ARCH_SET_FS
	LEAQ 32(SP), SI
	MOVL $158, AX    // arch_prctl
	SYSCALL
	LEAQ 64(SP), AX
	MOVQ AX, 8(SP)
	CALL ·early(SB)
	MOVQ 16(SP), SP
	JMP  _rt0_amd64_linux(SB)
