package addons

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/strictjson"
)

const (
	// inventoryNamespace, inventoryName and inventoryKey are the location of the inventory: a ConfigMap and its key.
	inventoryNamespace = metav1.NamespaceSystem
	inventoryName      = "kubernetes-bosh-release-addons"
	inventoryKey       = "objects.json"
)

// errOtherApply means that another Apply has changed the inventory since this one has read it.
var errOtherApply = errors.New("another apply is running")

// entry is one object that was applied or is about to be.
type entry struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// UID is the UID of the applied object; empty until it has been applied.
	UID types.UID `json:"uid,omitempty"`
	// Foreign marks an object that someone else created before the first apply. It is never deleted.
	Foreign bool `json:"foreign,omitempty"`
}

func (e entry) key() key {
	return key{schema.GroupKind{Group: e.Group, Kind: e.Kind}, e.Namespace, e.Name}
}

// inventory is the record of applied objects in the cluster. It is written before anything is applied, with the
// previous and the new objects, and again afterwards. An apply that is interrupted therefore forgets nothing; at worst
// the inventory lists an object that was never created.
type inventory struct {
	client kubernetes.Interface
	// retry repeats requests while the API server is unavailable.
	retry   func(ctx context.Context, request func() error) error
	name    string
	stored  *corev1.ConfigMap
	entries map[key]entry
}

func (a *applier) readInventory(ctx context.Context) (*inventory, error) {
	i := &inventory{
		client:  a.client,
		retry:   a.retry,
		name:    a.inventoryName,
		entries: map[key]entry{},
	}
	if err := i.read(ctx); err != nil {
		return nil, err
	}
	if i.stored == nil {
		return i, nil
	}
	var entries []entry
	if err := strictjson.Unmarshal([]byte(i.stored.Data[inventoryKey]), &entries); err != nil {
		return nil, fmt.Errorf(
			"inventory ConfigMap %s/%s, key %s: %w; it was changed by hand or by a newer release: restore it, or "+
				"delete the ConfigMap and, by hand, the objects that are no longer needed",
			inventoryNamespace, i.name, inventoryKey, err,
		)
	}
	for _, e := range entries {
		i.entries[e.key()] = e
	}
	return i, nil
}

// read gets the stored ConfigMap; a missing one is no error.
func (i *inventory) read(ctx context.Context) error {
	err := i.retry(ctx, func() (err error) {
		i.stored, err = i.client.CoreV1().ConfigMaps(inventoryNamespace).Get(ctx, i.name, metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		i.stored = nil
		return nil
	}
	if err != nil {
		return fmt.Errorf("read inventory ConfigMap %s/%s: %w", inventoryNamespace, i.name, err)
	}
	return nil
}

// write stores the entries if they have changed. Of two concurrent applies, the later writer fails.
func (i *inventory) write(ctx context.Context) error {
	text, err := i.text()
	if err != nil {
		return err
	}
	if i.holds(text) {
		return nil
	}
	var stored *corev1.ConfigMap
	err = i.retry(ctx, func() (err error) {
		stored, err = i.send(ctx, text)
		return err
	})
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		// Either another apply was faster, or this repeats a request that succeeded and whose response was lost.
		if again := i.read(ctx); again != nil || !i.holds(text) {
			return fmt.Errorf(
				"inventory ConfigMap %s/%s was changed meanwhile: %w: %w", inventoryNamespace, i.name, errOtherApply,
				err,
			)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("write inventory ConfigMap %s/%s: %w", inventoryNamespace, i.name, err)
	}
	i.stored = stored
	return nil
}

func (i *inventory) holds(text string) bool {
	return i.stored != nil && i.stored.Data[inventoryKey] == text
}

func (i *inventory) send(ctx context.Context, text string) (*corev1.ConfigMap, error) {
	if i.stored != nil {
		changed := i.stored.DeepCopy()
		changed.Data = map[string]string{inventoryKey: text}
		return i.client.CoreV1().
			ConfigMaps(inventoryNamespace).
			Update(ctx, changed, metav1.UpdateOptions{FieldManager: FieldManager})
	}
	return i.client.CoreV1().ConfigMaps(inventoryNamespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:      i.name,
			Namespace: inventoryNamespace,
			Labels:    map[string]string{"app.kubernetes.io/managed-by": FieldManager},
			Annotations: map[string]string{
				"kubernetes.bosh.io/description": "Objects applied by the job kubernetes-addons. The job needs this " +
					"list to delete objects that a later version does not have.",
			},
		},
		Data: map[string]string{inventoryKey: text},
	}, metav1.CreateOptions{FieldManager: FieldManager})
}

// text encodes the entries in a fixed order, so that an apply that changes nothing writes nothing.
func (i *inventory) text() (string, error) {
	entries := make([]entry, 0, len(i.entries))
	for _, e := range i.entries {
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(
			cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name),
		)
	})
	text, err := json.MarshalIndent(entries, "", " ")
	return string(text), err
}
