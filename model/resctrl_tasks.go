package model

import "fmt"

// The classes of service that policies put tasks into. Each is one control group of resctrl, made when
// it is first needed and removed with its last use; machines have as few as four.
const (
	ClassFound TaskNum = iota // none of ours: where the task was found
	ClassBE                   // BE tasks together
	ClassLC                   // services together, where they have ways for themselves
	classPart                 // some services, where those have a part of that for themselves: the first of MaxParts
	NumClasses         = classPart + MaxParts

	// classAlone marks the class of one task: the task's number with this bit.
	classAlone TaskNum = 1 << 31
)

// MaxParts is how many parts services can have beside what the rest of them has. Machines have 4 to 16 classes.
const MaxParts = 4

var className = [classPart]string{"as found", "be", "lc"}

// ClassOfPart returns the class of some services that have a part of the ways for themselves, counted from 0.
func ClassOfPart(part int) TaskNum { return classPart + TaskNum(part) }

// ServicesDown ranges over the classes of services in the order of their ways from the high side: parts first, the rest next to BE's.
func ServicesDown(yield func(TaskNum) bool) {
	for part := range MaxParts {
		if !yield(ClassOfPart(part)) {
			return
		}
	}
	yield(ClassLC)
}

// OfServices reports whether a class is one of services.
func OfServices(class TaskNum) bool { return class >= ClassLC && class < NumClasses }

// ClassOf returns the class of service that one task has for itself. It stands for as long as the task's number does,
// so nothing has to remember whose it is.
func ClassOf(task TaskNum) TaskNum { return classAlone | task }

// Alone returns the task that has a class for itself, 0 where the class is none of one task.
func Alone(class TaskNum) TaskNum {
	if class < classAlone {
		return 0
	}
	return class &^ classAlone
}

// ClassName returns a class's name, by which its control group is called.
func ClassName(class TaskNum) string {
	switch {
	case class < classPart:
		return className[class]
	case class < NumClasses:
		return fmt.Sprintf("lc%d", class-classPart+1)
	case class > classAlone:
		return fmt.Sprintf("task%d", Alone(class))
	}
	return fmt.Sprintf("unknown(%d)", class)
}

// serviceClassSpec is the class of service that a task's threads are in: the file tasks of a control group of
// resctrl. Threads that another program put into a group of its own stay there.
var serviceClassSpec = func() KnobSpec {
	s := KnobSpec{
		Name: "resctrl.tasks", Beside: true,
		Takes: [NumClaimKinds][]Class{ClaimPlace: {LC, BE}},
		Suits: func(s Setting, c Class) bool { return OfServices(TaskNum(s.Amount)) == (c == LC) },
		Class: func(s Setting) TaskNum { return TaskNum(s.Amount) },
		Show: func(s Setting) string {
			if Alone(TaskNum(s.Amount)) != 0 {
				return "a class of its own"
			}
			return "class " + ClassName(TaskNum(s.Amount))
		},
	}
	s.Encode, s.Decode = oneNumber(ServiceClass)
	return s
}()

// InClass returns the setting of a task in a class of service.
func InClass(class TaskNum) Setting { return Setting{Knob: ServiceClass, Amount: int64(class)} }
