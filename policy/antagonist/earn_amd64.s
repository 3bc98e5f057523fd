#include "textflag.h"

// func earn(ws []weighted, usage *[lanes][]float64, out *earnings)
//
// X0-X3 are what the eight suspects used, X4-X7 what they earned, two in each; AX is the
// window at hand, and the other registers point to the suspects' usage.
TEXT ·earn(SB), NOSPLIT, $0-40
	MOVQ ws_base+0(FP), AX
	MOVQ ws_len+8(FP), CX
	MOVQ usage+24(FP), DX
	MOVQ 0(DX), DI
	MOVQ 24(DX), SI
	MOVQ 48(DX), R8
	MOVQ 72(DX), R9
	MOVQ 96(DX), R10
	MOVQ 120(DX), R11
	MOVQ 144(DX), R12
	MOVQ 168(DX), R13
	XORPS X0, X0
	XORPS X1, X1
	XORPS X2, X2
	XORPS X3, X3
	XORPS X4, X4
	XORPS X5, X5
	XORPS X6, X6
	XORPS X7, X7
	TESTQ CX, CX
	JZ   done

window:
	MOVQ     0(AX), BX  // weighted.window
	MOVSD    8(AX), X8  // weighted.weight
	UNPCKLPD X8, X8
	MOVSD    (DI)(BX*8), X9
	MOVHPD   (SI)(BX*8), X9
	ADDPD    X9, X0
	MULPD    X8, X9
	ADDPD    X9, X4
	MOVSD    (R8)(BX*8), X10
	MOVHPD   (R9)(BX*8), X10
	ADDPD    X10, X1
	MULPD    X8, X10
	ADDPD    X10, X5
	MOVSD    (R10)(BX*8), X11
	MOVHPD   (R11)(BX*8), X11
	ADDPD    X11, X2
	MULPD    X8, X11
	ADDPD    X11, X6
	MOVSD    (R12)(BX*8), X12
	MOVHPD   (R13)(BX*8), X12
	ADDPD    X12, X3
	MULPD    X8, X12
	ADDPD    X12, X7
	ADDQ     $16, AX
	DECQ     CX
	JNZ      window

done:
	MOVQ   out+32(FP), DX
	MOVUPD X0, 0(DX)
	MOVUPD X1, 16(DX)
	MOVUPD X2, 32(DX)
	MOVUPD X3, 48(DX)
	MOVUPD X4, 64(DX)
	MOVUPD X5, 80(DX)
	MOVUPD X6, 96(DX)
	MOVUPD X7, 112(DX)
	RET
